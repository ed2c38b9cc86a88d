// Two runs side by side: scores, the verdict, where their confusions differ, and the images on which they differ.

import { lineChart } from "./charts.js";
import { confusionTable } from "./confusion.js";
import { count, el, fill, percent } from "./dom.js";
import { lines } from "./run.js";

const PREVIEW = 12;

export async function paintPair(page, studio, a, b) {
  const back = el("a", { class: "back", href: "#runs" }, "← All runs");
  fill(page, back, el("p", { class: "faint" }, "One moment…"));
  let pair;
  try {
    pair = await studio.api.get(`/api/pair?${new URLSearchParams({ a, b })}`);
  } catch (error) {
    fill(page, back, el("p", { class: "bad" }, error.message));
    return;
  }
  const [one, other] = pair.runs;
  fill(page,
    el("header", { class: "view-head" }, back, el("h1", {}, "Side by side"), el("p", { class: "verdict" }, pair.verdict)),
    el("div", { class: "look-pair even" },
      el("section", { class: "look-panel" }, el("h2", {}, "Scores"), scores(one, other)),
      el("section", { class: "look-panel" }, el("h2", {}, "Test error"), curves(one, other))),
    el("section", { class: "look-panel" }, el("h2", {}, "Images on which they differ"), differing(studio, pair)),
    el("section", { class: "look-panel" }, el("h2", {}, "Where their mistakes differ"), difference(one, other)));
}

const heading = (run) => el("th", { scope: "col" }, el("a", { href: `#runs?${new URLSearchParams({ run: run.name })}` }, run.name));

function scores(one, other) {
  const theirs = new Map(other.scores.map((score) => [score.key, score]));
  const rows = one.scores.filter((score) => theirs.has(score.key)).map((score) => {
    const second = theirs.get(score.key);
    const lead = !score.better || score.value === second.value ? 0 : score.value < second.value === (score.better === "lower") ? 1 : -1;
    const cell = (text, best) => el("td", { class: best ? "number best" : "number" }, text, best ? el("span", { class: "unseen" }, " (better)") : null);
    return el("tr", { title: score.definition }, el("th", { scope: "row" }, score.name), cell(score.text, lead > 0), cell(second.text, lead < 0));
  });
  const settings = Object.keys({ ...one.recipe, ...other.recipe }).filter((key) => JSON.stringify(one.recipe[key]) !== JSON.stringify(other.recipe[key]));
  const said = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  return el("div", { class: "table-box" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, el("td"), heading(one), heading(other))),
    el("tbody", {}, rows),
    settings.length ? el("tbody", {}, el("tr", {}, el("th", { scope: "rowgroup", colspan: 3, class: "group" }, "Settings that differ")), settings.map((key) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, key)), el("td", {}, said(one.recipe[key])), el("td", {}, said(other.recipe[key]))))) : null));
}

function curves(one, other) {
  const drawn = [one, other].flatMap((run) => lines(run, [["test_error", run.name]]));
  if (!drawn.length) return el("p", { class: "empty" }, "Neither was tested on the way.");
  return el("figure", {}, lineChart({ lines: drawn, x: "step", y: "test error", as: (share) => percent(share) }));
}

function differing(studio, { differ, images, runs }) {
  const [one, other] = [0, 1].map((side) => differ.filter(({ truth, guesses }) => guesses[side] === truth));
  const neither = differ.filter(({ truth, guesses }) => !guesses.includes(truth));
  if (!differ.length) return el("p", { class: "empty" }, images ? `None: both answer alike on all ${count(images, "test image")}.` : "No image was tested by both.");
  const group = (title, entries) => {
    const ids = entries.map(({ id }) => id).filter((id) => id !== null);
    const open = () => studio.openImages({ title, ids });
    return el("li", {}, el("button", { type: "button", class: "look-list", disabled: !ids.length, onclick: open },
      el("span", { class: "list-head" }, el("strong", {}, title), el("span", { class: "number list-count" }, entries.length.toLocaleString("en"))),
      el("span", { class: "list-images" }, ids.slice(0, PREVIEW / 2).map((id) => el("img", { src: studio.picture(id, 160), alt: "", loading: "lazy" })))));
  };
  const rows = differ.slice(0, PREVIEW).map(({ id, name, truth, guesses, confidences }) => el("tr", {},
    el("td", {}, id === null ? null : el("img", { class: "tiny", src: studio.picture(id, 160), alt: "", loading: "lazy" })), el("th", { scope: "row" }, name), el("td", {}, truth),
    guesses.map((guess, side) => el("td", { class: guess === truth ? "good" : "bad" }, `${guess === truth ? "✓" : "✗"} ${guess}, ${percent(confidences[side])} sure`))));
  const heads = ["", "Image", "Class", ...runs.map((run) => run.name)];
  return el("div", { class: "differing" },
    el("p", {}, `${count(differ.length, "image")} of ${images.toLocaleString("en")} that both were tested on.`),
    el("ul", { class: "look-lists" }, group(`Only ${runs[0].name} is right`, one), group(`Only ${runs[1].name} is right`, other), group("Both wrong, differently", neither)),
    el("div", { class: "table-box" }, el("table", { class: "plain" },
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows))));
}

function difference(one, other) {
  if (!one.confusion || !other.confusion || String(one.confusion.classes) !== String(other.confusion.classes)) {
    return el("p", { class: "empty" }, "Both have to be tested on the same classes.");
  }
  const matrix = one.confusion.matrix.map((row, r) => row.map((value, c) => other.confusion.matrix[r][c] - value));
  const caption = `What ${other.name} has more or less of than ${one.name}. Rows: the true class. Columns: the guess. Green is better.`;
  return confusionTable({ names: one.confusion.classes, matrix, caption, signed: true });
}
