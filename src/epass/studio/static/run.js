// One run: how it went, what it scores, and what it gets wrong.

import { lineChart, reliability } from "./charts.js";
import { confusionTable } from "./confusion.js";
import { count, el, fill, percent } from "./dom.js";
import { spoken, status, when } from "./jobs.js";

const AGAIN = 3000; // ms until a run that goes on is looked at again
const CURVES = [["test_error", "test error"], ["valid_error", "validation error"], ["coverage", "coverage"], ["quality", "quality"]];

/** The page of a run; it is kept fresh while the run goes on and `shown()` still is this run. */
export async function paintRun(page, studio, name, shown, stateOf) {
  const back = el("a", { class: "back", href: "#runs" }, "← All runs");
  let run;
  try {
    run = await studio.api.get(`/api/runs/${name.split("/").map(encodeURIComponent).join("/")}`);
  } catch (error) {
    fill(page, back, el("p", { class: "bad" }, error.message));
    return;
  }
  if (shown() !== name) return;
  run.state = stateOf(run);
  const open = [...page.querySelectorAll("details[open]")].map((each) => each.dataset.part);
  const part = (key, title, ...children) => el("details", { class: "panel", data: { part: key }, open: open.includes(key) }, el("summary", {}, title), children);
  fill(page,
    el("header", { class: "view-head" }, back, el("div", { class: "row" }, el("h1", {}, run.name), status(run.state)),
      el("p", { class: "lead" }, summary(run))),
    run.guard ? el("section", { class: "look-panel" }, el("h2", {}, "Did the unlabeled images help?"), el("p", {}, run.guard)) : null,
    el("div", { class: "look-pair" },
      el("section", { class: "look-panel" }, el("h2", {}, "Curve"), curveOf(run)),
      el("section", { class: "look-panel" }, el("h2", {}, "Scores"), scoresOf(run))),
    run.confusion ? el("div", { class: "look-pair" },
      el("section", { class: "look-panel" }, el("h2", {}, "Which classes it mixes up"), confusionOf(studio, run)),
      el("section", { class: "look-panel" }, el("h2", {}, "How far to trust its confidence"),
        el("figure", { class: "chart-square" }, reliability({ ...run.reliability, labels: run.reliability.images }, "test image")),
        el("p", { class: "faint small" }, `Over ${count(run.reliability.images, "test image")}; expected calibration error ${percent(run.reliability.ece, 1)}.`))) : null,
    run.report ? el("p", {}, el("a", { class: "button", href: `/report/${encodeURIComponent(run.name)}`, target: "_blank", rel: "noopener" }, "Open its report")) : null,
    part("recipe", "Every setting", facts(Object.entries(run.recipe).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]))),
    part("files", "Files and command", el("p", { class: "small" }, run.files.join(", ")), run.command ? el("p", { class: "small" }, el("code", {}, run.command)) : null));
  if (run.state === "running") setTimeout(() => shown() === name && paintRun(page, studio, name, shown, stateOf), AGAIN);
}

function summary(run) {
  const words = [run.title];
  if (run.labels !== null && run.labels !== undefined) words.push(typeof run.labels === "number" ? count(run.labels, "label") : String(run.labels));
  if (run.steps) words.push(run.state === "finished" ? count(run.step, "step") : `step ${run.step.toLocaleString("en")} of ${run.steps.toLocaleString("en")}`);
  if (run.seconds) words.push(run.seconds < 120 ? `${Math.round(run.seconds)} s` : `${Math.round(run.seconds / 60)} min`);
  if (run.device) words.push(`on ${run.device}`);
  if (run.started) words.push(when(Date.parse(run.started) / 1000));
  return words.filter(Boolean).join(" · ");
}

export function lines(run, keys = CURVES) {
  const steps = run.curve.step ?? [];
  return keys.map(([key, name]) => ({
    name, points: steps.map((step, k) => [step, run.curve[key]?.[k]]).filter(([, value]) => typeof value === "number"),
  })).filter((line) => line.points.length > 1);
}

function curveOf(run) {
  const drawn = lines(run);
  if (drawn.length) return el("figure", {}, lineChart({ lines: drawn, x: "step", y: drawn[0].name, as: (share) => percent(share) }));
  const loss = lines(run, [["loss", "loss"]]);
  if (loss.length) return el("figure", {}, lineChart({ lines: loss, x: "step", y: "loss", as: (number) => String(Number(number.toPrecision(2))) }));
  return el("p", { class: "empty" }, run.state === "running" ? "The curve begins with the first report." : "This run has no curve: it was over before its second report.");
}

function scoresOf(run) {
  if (!run.scores.length) {
    const error = run.error === null ? "" : ` The last test error was ${spoken("error", run.error)}.`;
    return el("p", { class: "empty" }, run.state === "finished" ? "It was not tested: every label was used for learning." : `Scores are there when it is finished.${error}`);
  }
  const beside = run.scores.some((score) => score.labels_only !== null);
  return el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ["Score", "This run", beside ? "Labels only" : null].filter(Boolean).map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, run.scores.map((score) => el("tr", { title: score.definition }, el("th", { scope: "row" }, score.name), el("td", { class: "number" }, score.text),
      beside ? el("td", { class: "number" }, score.labels_only_text ?? "–") : null))));
}

function confusionOf(studio, run) {
  const { classes, matrix } = run.confusion;
  const of = (r, c) => run.mistakes.filter(({ id, truth, guess }) => id !== null && truth === classes[r] && guess === classes[c]).map(({ id }) => id);
  const open = (r, c) => studio.openImages({ title: `${run.name}: ${classes[r]} taken for ${classes[c]}`, ids: of(r, c) });
  const caption = `${count(matrix.flat().reduce((sum, value) => sum + value, 0), "test image")}. Rows: the true class. Columns: the guess.`;
  return confusionTable({ names: classes, matrix, caption, open, can: (r, c) => of(r, c).length > 0 });
}

export function facts(entries) {
  return el("dl", { class: "facts small" }, entries.map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)]));
}
