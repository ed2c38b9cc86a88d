// The end of the work: name all images, take the model along, write the report, and hand labels out or take them in.

import { count, el, fill } from "./dom.js";
import { showEvents } from "./forms.js";
import { fileLinks, followJobs, isRunning, progressBar } from "./jobs.js";
import { keep } from "./keep.js";

const CARDS = [
  ["predict", "Name every image", "A table (CSV) with the class of every image in the folder and how sure the model is.", "Write the table"],
  ["export", "Take the model along", "One folder with the weights, a PyTorch program and an ONNX file, which work without this package.", "Export the model"],
  ["report", "Write the report", "One page with scores, curves, mistakes and a map, to keep or to send.", "Write the report"],
];
const EXPORTS = [
  ["csv", "CSV", "file, label and mark of each image"],
  ["folders", "Folders (ZIP)", "a copy of the labeled images, in a folder for each class"],
  ["json", "Label Studio (JSON)", "to go on labeling there, or in any tool that reads it"],
];

export function mount(root, studio) {
  const { api, state } = studio;
  let runs = [];
  let chosen = null; // null: the newest
  let visible = false;
  const wished = new Set(); // buttons that were pressed and have no job yet
  const jobs = followJobs(studio, (job) => {
    if (!visible) return;
    if (job.do === "train" && !isRunning(job)) read();
    else paint();
  });

  const model = el("section", { class: "look-panel" });
  const cards = el("div", { class: "finish-cards" });
  const labels = el("section", { class: "look-panel" });
  root.classList.add("look");
  root.replaceChildren(
    el("header", { class: "view-head" }, el("h1", {}, "Finish"),
      el("p", { class: "lead" }, "What you take home. Everything stays on this machine, in the folder where the studio was started.")),
    model, cards, labels,
  );
  paintLabels();

  // what cannot be read is left out, as by the model beside the labels: the run says which, and there is no form here
  const train = () => start("train", { skip_unreadable: true });
  const finished = () => runs.filter((run) => jobs.stateOf(run) === "finished");
  const current = () => finished().find((run) => run.name === chosen) ?? finished()[0] ?? null;
  const newest = (what, run) => jobs.all().find((job) => job.do === what && (!run || [job.said.run, ...(job.said.runs ?? [])].includes(run)));

  async function start(what, said) {
    wished.add(what);
    paint();
    try {
      await api.post("/api/jobs", { do: what, said, plan: false });
      await jobs.read();
    } catch (error) {
      studio.toast(error.message, "warning");
    }
    wished.delete(what);
    paint();
  }

  function paintModel() {
    const run = current();
    const training = jobs.all().find((job) => job.do === "train" && isRunning(job));
    const last = newest("train");
    const newer = (job) => !(Date.parse(finished()[0]?.started) / 1000 >= job.started);
    const failed = last && !isRunning(last) && last.state !== "finished" && newer(last) ? last.sentence : "";
    const names = finished().map(({ name }) => name);
    const ready = state.classes.filter((each) => each.count >= 2).length >= 2;
    const busy = Boolean(training) || wished.has("train");
    const shown = [names, run?.name, ready, busy, failed, run ? 0 : state.labeled];
    keep(model, [[shown, () => el("div", {}, run ? choose(names, run.name, busy) : offer(ready, busy), failed ? el("p", { class: "bad" }, failed) : null)],
      ["live", () => el("div", { class: "live" })]]);
    fill(model.lastChild, training ? progressBar(training.progress) : null);
  }

  function choose(names, name, busy) {
    const select = el("select", { id: "finish-run", onchange: (event) => { chosen = event.target.value; paint(); } },
      names.map((each) => el("option", { value: each, selected: each === name }, each)));
    return [el("h2", {}, "Which model"), el("div", { class: "row" }, el("label", { for: "finish-run" }, "Run"), select,
      el("button", { type: "button", disabled: busy, onclick: train }, "Train again from the labels of now"))];
  }

  function offer(ready, busy) {
    const words = ready
      ? `There is no finished run yet. One is trained from your ${count(state.labeled, "label")} and all other images by the usual plan. Without a folder of test images, a fifth of the labels is held back to test it.`
      : "There is no finished run yet: label at least 2 images in each of two classes first.";
    return [el("h2", {}, "First a model to keep"), el("p", {}, words), el("div", { class: "actions" },
      el("button", { type: "button", class: "primary", data: { do: "train" }, disabled: !ready || busy, onclick: train }, "Train one"))];
  }

  function paintCards() {
    const run = current();
    const known = CARDS.map(([what]) => (run ? newest(what, run.name) : null));
    keep(cards, CARDS.map((card, k) => {
      const job = known[k] && { ...known[k], progress: null, curve: null };
      return [[run?.name, job, wished.has(card[0])], () => cardOf(card, run, job)];
    }));
    known.forEach((job, k) => fill(cards.children[k].querySelector(".live"), job && isRunning(job) ? progressBar(job.progress) : null));
  }

  function cardOf([what, title, sentence, verb], run, job) {
    const busy = wished.has(what) || (job && isRunning(job));
    const said = what === "report" ? { runs: [run?.name] } : { run: run?.name };
    const outcome = job && [
      job.sentence ? el("p", { class: job.state === "finished" ? "small" : "bad" }, job.sentence) : null,
      job.result?.partial ? el("div", { class: "caution" }, showEvents(job.events.filter((event) => event.lines?.length))) : null,
      facts(job.result?.facts),
      fileLinks(job),
    ];
    const again = job?.files.length > 0;
    return el("section", { class: "look-panel finish-card", data: { card: what } }, el("h2", {}, title), el("p", { class: "faint" }, sentence),
      el("div", { class: "live" }), el("div", { class: "outcome", aria: { live: "polite" } }, outcome),
      el("button", { type: "button", class: again ? null : "primary", disabled: !run || busy, onclick: () => start(what, said) }, again ? `${verb} again` : verb));
  }

  function facts(known) {
    const entries = Object.entries(known ?? {});
    return entries.length ? el("dl", { class: "facts small" }, entries.map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)])) : null;
  }

  function paintLabels() {
    const outcome = el("div", { aria: { live: "polite" } });
    const file = el("input", { type: "file", id: "finish-file", accept: ".csv,.json,.zip" });
    file.addEventListener("change", () => file.files[0] && takeIn(file.files[0], false));

    async function takeIn(taken, force) {
      fill(outcome, el("p", { class: "faint" }, `Reading ${taken.name}…`));
      try {
        const { said } = await api.upload(`/api/import?name=${encodeURIComponent(taken.name)}&force=${force ? 1 : 0}`, taken);
        fill(outcome, el("p", { class: "good" }, said));
        studio.refresh?.();
      } catch (error) {
        const anyway = error.status !== 409 ? null // else the file itself cannot be read
          : el("button", { type: "button", onclick: () => takeIn(taken, true) }, "Take them in anyway: they replace labels that differ");
        fill(outcome, el("p", { class: "bad" }, error.message), anyway);
      }
      file.value = "";
    }

    fill(labels, el("h2", {}, "Labels"),
      el("div", { class: "look-pair" },
        el("div", {}, el("h3", {}, "Hand out"), el("ul", { class: "plain-list" }, EXPORTS.map(([kind, title, words]) =>
          el("li", {}, el("a", { class: "button", href: `/api/export/${kind}`, download: true }, `↓ ${title}`), el("span", { class: "faint small" }, words))))),
        el("div", {}, el("h3", {}, "Take in"), el("p", { class: "faint small" }, "A CSV or Label Studio JSON with names of these images, or a ZIP of class folders."),
          el("label", { class: "button", for: "finish-file" }, "Choose a file…"), file, outcome)));
  }

  function paint() {
    if (!visible) return;
    paintModel();
    paintCards();
  }

  async function read() {
    try {
      [runs] = await Promise.all([api.get("/api/runs"), jobs.read()]);
      paint();
    } catch (error) {
      studio.toast(error.message, "warning");
    }
  }
  studio.on("state", paint);
  studio.on("reconnect", () => visible && read());

  return {
    show() {
      visible = true;
      read();
    },
    hide() {
      visible = false;
    },
  };
}
