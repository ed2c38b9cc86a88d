// Jobs: what was started from this page. Each runs in a process of its own, and goes on when the page is closed.

import { lineChart } from "./charts.js";
import { count, el, fill, percent } from "./dom.js";
import { showEvents } from "./forms.js";
import { keep } from "./keep.js";

const WORDS = { stopping: "stopping", refused: "not possible", unfinished: "not finished" };
export const TITLES = {
  train: "Train", compare: "Compare methods", pretrain: "Learn from images alone", calibrate: "Calibrate", evaluate: "Test",
  predict: "Name all images", export: "Export", report: "Write a report",
};
const HEIGHT = 150; // of the curve of a job
const OPENED = new Set(); // jobs whose words are open, for cards are made anew at every step

export const isRunning = (job) => job.state === "running" || job.state === "stopping";

export function status(state) {
  return el("span", { class: `status ${state}` }, WORDS[state] ?? state);
}

export function when(seconds) {
  if (!seconds) return "";
  return new Date(1000 * seconds).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

function timeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

/** A number of a report in words. */
export function spoken(name, number) {
  if (typeof number !== "number") return "–";
  if (/error|accuracy|coverage|quality|ece/.test(name)) return percent(number, 1);
  return Number(number.toPrecision(3)).toLocaleString("en");
}

/** How far something is: a bar, and words. */
export function progressBar(progress) {
  if (!progress?.steps) return el("progress", { aria: { label: "getting ready" } });
  const words = `${progress.step.toLocaleString("en")} of ${count(progress.steps, progress.what || "step")}`;
  const said = Object.entries(progress.values ?? {}).slice(0, 3).map(([name, number]) => `${name.replaceAll("_", " ")} ${spoken(name, number)}`);
  return el("div", { class: "job-progress" },
    el("progress", { max: progress.steps, value: progress.step, aria: { label: words } }),
    el("span", { class: "small faint number" }, [words, timeLeft(progress.seconds_left), ...said].filter(Boolean).join(" · ")));
}

export function fileLinks(job) {
  if (!job.files.length) return null;
  const at = (name) => `/api/jobs/${encodeURIComponent(job.id)}/files/${encodeURIComponent(name)}`;
  return el("ul", { class: "files" }, job.files.map(({ what, name }) =>
    el("li", {}, el("a", { class: "button", href: at(name), download: name, title: what }, `↓ ${name}`))));
}

/** All jobs, kept fresh by the server's news; `changed()` is called after each. */
export function followJobs(studio, changed) {
  const jobs = new Map();
  const heard = new Map(); // of each job, which news told of it last: a list that was asked for before that is older
  let news = 0;
  const take = (job) => {
    const { step, values, what } = job.progress ?? {};
    const curve = jobs.get(job.id)?.curve ?? { name: "test_error" in (values ?? {}) ? "test_error" : "loss", points: [] };
    const value = what === "step" ? values?.[curve.name] : undefined;
    if (typeof value === "number" && !(curve.points.at(-1)?.[0] >= step)) curve.points.push([step, value]);
    jobs.set(job.id, { ...job, curve });
  };
  studio.on("job", (job) => {
    heard.set(job.id, ++news);
    take(job);
    changed(job);
  });
  return {
    async read() {
      const asked = news;
      const found = await studio.api.get("/api/jobs");
      const isFresh = (id) => !(heard.get(id) > asked);
      for (const id of jobs.keys()) if (isFresh(id) && !found.some((job) => job.id === id)) jobs.delete(id);
      found.filter((job) => isFresh(job.id)).forEach(take);
    },
    /** the newest first */
    all: () => [...jobs.values()].sort((a, b) => b.started - a.started),
    /** A run has its results before its job is over: the guard may still decide which model is kept. */
    stateOf: (run) => ([...jobs.values()].some((job) => job.run === run.name && isRunning(job)) ? "running" : run.state),
  };
}

async function control(studio, job, what, button) {
  button.disabled = true;
  try {
    await studio.api.post(`/api/jobs/${encodeURIComponent(job.id)}/${what}`);
  } catch (error) {
    button.disabled = false;
    studio.toast(error.message, "warning");
  }
}

/** What a job reported while this page was open. */
function curveOf({ name, points }) {
  if (points.length < 2) return null;
  const words = name.replaceAll("_", " ");
  return el("figure", { class: "job-curve" }, lineChart({ lines: [{ name: words, points }], x: `step · ${words}`, y: words, as: (number) => spoken(name, number), height: HEIGHT }));
}

/** Cards of jobs in a place of the page: their buttons stay while their progress goes on. */
export function showJobs(studio, place, jobs) {
  keep(place, jobs.map((job) => [{ ...job, progress: null, curve: null }, () => jobCard(studio, job)]));
  jobs.forEach((job, k) => {
    fill(place.children[k].querySelector(".live"), isRunning(job) ? [progressBar(job.progress), curveOf(job.curve)] : []);
  });
}

/** A job with its buttons, and what it said. */
function jobCard(studio, job) {
  const button = (text, what, disabled = false) =>
    el("button", { type: "button", disabled, onclick: (event) => control(studio, job, what, event.currentTarget) }, text);
  const bad = job.state === "failed" || job.state === "refused";
  const words = el("details", { class: "said", open: OPENED.has(job.id) }, el("summary", {}, "What it said"),
    showEvents(job.events), job.command ? el("p", { class: "small faint" }, "The same in a terminal: ", el("code", {}, job.command)) : null);
  words.addEventListener("toggle", () => (words.open ? OPENED.add(job.id) : OPENED.delete(job.id)));
  return el("article", { class: "card job", data: { job: job.id, state: job.state } },
    el("header", {}, el("h3", {}, job.run ?? TITLES[job.do]), status(job.state),
      el("span", { class: "small faint" }, [job.run ? TITLES[job.do] : "", when(job.started)].filter(Boolean).join(", "))),
    el("div", { class: "live" }),
    job.sentence ? el("p", { class: bad ? "bad" : "" }, job.sentence[0].toUpperCase() + job.sentence.slice(1)) : null,
    fileLinks(job),
    words,
    el("div", { class: "actions" },
      isRunning(job) ? button("Stop", "stop", job.state === "stopping") : null,
      job.resumable ? button("Resume", "resume") : null,
      job.run ? el("button", { type: "button", class: "quiet", onclick: () => studio.go("runs", { run: job.run }) }, "Details") : null));
}
