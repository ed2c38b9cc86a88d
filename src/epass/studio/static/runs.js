// Runs: those that there are, also from a terminal, those that go on, new ones from forms, and two side by side.

import { paintPair } from "./compare.js";
import { count, el, fill } from "./dom.js";
import { buildForm, showEvents } from "./forms.js";
import { TITLES, followJobs, isRunning, showJobs, spoken, status, when } from "./jobs.js";
import { keep } from "./keep.js";
import { paintRun } from "./run.js";

const POLL = 2000; // ms: runs of a terminal tell nobody
const SHOWN = 6; // jobs that are over

export function mount(root, studio) {
  const { api } = studio;
  const picked = new Set(); // names of runs to put side by side
  let runs = null;
  let before = ""; // what the list shows: it is not made anew where nothing is new
  let timer = 0;
  let params = {};
  const jobs = followJobs(studio, () => paintJobs());

  const going = el("div", { class: "jobs" });
  const gone = el("div", { class: "jobs" });
  const lately = el("details", { class: "panel", hidden: true }, el("summary", {}, "Lately"), gone);
  const table = el("div", { class: "table-box" });
  const pick = el("div", { class: "pick", aria: { live: "polite" } });
  const page = el("div", { class: "look" });
  root.replaceChildren(page);

  function paint() {
    clearInterval(timer);
    if (params.a && params.b) return paintPair(page, studio, params.a, params.b);
    if (params.run) {
      const show = () => paintRun(page, studio, params.run, () => params.run, jobs.stateOf);
      return jobs.read().then(show, show);
    }
    if (params.new) return paintForm(params.new);
    return paintList();
  }

  // the list

  function paintList() {
    const start = el("button", { type: "button", class: "primary", onclick: () => studio.go("runs", { new: "train" }) }, "New run");
    fill(page,
      el("header", { class: "view-head" }, el("div", { class: "row" }, el("h1", {}, "Runs"), start),
        el("p", { class: "lead" }, "Longer trainings than the one behind the Label page: other methods, more steps, fine-tuning on a GPU. They go on when this page is closed, and those that you start in a terminal appear here, too.")),
      going, lately, el("section", { class: "look-panel" }, el("h2", {}, "All runs on these images"), pick, table));
    before = "";
    read();
    timer = setInterval(() => !document.hidden && readRuns(), POLL);
  }

  async function read() {
    try {
      await Promise.all([jobs.read(), readRuns()]);
    } catch (error) {
      studio.toast(error.message, "warning");
    }
    paintJobs();
  }

  async function readRuns() {
    const found = await api.get("/api/runs").catch(() => runs);
    if (!found || JSON.stringify(found) === before) return;
    before = JSON.stringify(found);
    runs = found;
    paintTable();
  }

  function paintJobs() {
    if (params.run || params.new || params.a) return;
    const all = jobs.all();
    const over = all.filter((job) => !isRunning(job)).slice(0, SHOWN);
    showJobs(studio, going, all.filter(isRunning));
    showJobs(studio, gone, over);
    if (lately.hidden) lately.open = over[0]?.state !== "finished";
    lately.hidden = !over.length;
    if (runs) paintTable();
  }

  function paintTable() {
    for (const name of picked) if (!runs.some((run) => run.name === name)) picked.delete(name);
    paintPick();
    if (!runs.length) {
      fill(table, el("p", { class: "empty" }, "None yet. A run learns from your labels and all other images, and its model can be kept, exported and compared."));
      return;
    }
    let body = table.querySelector("tbody");
    if (!body) {
      body = el("tbody");
      const heads = ["", "Run", "What", "State", "Labels", "Test error", "Labels only", "Started"];
      fill(table, el("table", { class: "plain runs" },
        el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head || el("span", { class: "unseen" }, "Compare"))))), body));
    }
    keep(body, runs.map((run) => ({ ...run, state: jobs.stateOf(run) })).map((run) => [run, () => row(run)]));
  }

  function row(run) {
    const box = el("input", { type: "checkbox", checked: picked.has(run.name), data: { pick: run.name }, aria: { label: `Put ${run.name} beside another run` } });
    box.addEventListener("change", () => {
      if (box.checked) picked.add(run.name);
      else picked.delete(run.name);
      paintPick();
    });
    const far = run.state === "finished" ? null : el("progress", { max: run.steps || 1, value: run.step, aria: { label: `${run.step} of ${run.steps} steps` } });
    return el("tr", { data: { run: run.name } },
      el("td", {}, box), el("th", { scope: "row" }, el("a", { href: `#runs?${new URLSearchParams({ run: run.name })}` }, run.name)),
      el("td", {}, run.title), el("td", {}, status(run.state), far), el("td", { class: "number" }, run.labels ?? "–"),
      el("td", { class: "number" }, spoken("error", run.error)), el("td", { class: "number" }, spoken("error", run.labels_only_error)),
      el("td", { class: "faint small" }, when(Date.parse(run.started) / 1000) || run.started));
  }

  function paintPick() {
    const [a, b] = picked;
    const words = picked.size === 2 ? `${a} and ${b}` : picked.size === 1 ? "Pick one more to compare." : picked.size > 2 ? "Pick two, not more." : "";
    const go = el("button", { type: "button", class: "primary", onclick: () => studio.go("runs", { a, b }) }, "Put side by side");
    fill(pick, picked.size ? el("p", { class: "row" }, words, picked.size === 2 ? go : null) : runs?.length > 1 ? el("p", { class: "faint small" }, "Pick two runs to put them side by side.") : null);
  }

  // a new run

  async function paintForm(which) {
    fill(page, el("header", { class: "view-head" }, back(), el("h1", {}, "New run")), el("p", { class: "faint" }, "One moment…"));
    let forms;
    try {
      forms = await api.get("/api/forms");
    } catch (error) {
      fill(page, back(), el("p", { class: "bad" }, error.message));
      return;
    }
    if (params.new !== which) return;
    const form = forms.find((each) => each.do === which) ?? forms[0];
    const kinds = el("nav", { class: "kinds", aria: { label: "What to start" } }, forms.map(({ do: name, title }) =>
      el("a", { class: "button", href: `#runs?new=${name}`, aria: name === form.do ? { current: "page" } : {} }, TITLES[name] ?? title)));
    const ask = (said, plan) => api.post("/api/jobs", { do: form.do, said, plan });
    const made = buildForm(form, {
      plan: async (said) => {
        const events = await ask(said, true);
        return events.length ? showEvents(events) : el("p", {}, "This is done in a moment: nothing to plan.");
      },
      start: async (said) => {
        await ask(said, false);
        studio.toast(`Started: ${(TITLES[form.do] ?? form.title).toLowerCase()}.`);
        studio.go("runs");
      },
    });
    const learns = ["train", "compare"].includes(form.do) ? el("p", {}, `Learns from ${count(studio.state.labeled, "label")} as they are now, and from all ${studio.state.project.images.toLocaleString("en")} images. Leave everything as it is for the usual plan.`) : null;
    fill(page, el("header", { class: "view-head" }, back(), el("h1", {}, "New run")), kinds,
      el("section", { class: "look-panel" }, el("h2", {}, TITLES[form.do] ?? form.title), learns, made));
  }

  studio.on("reconnect", () => !root.hidden && paint());

  return {
    show(said) {
      params = said;
      paint();
    },
    hide() {
      clearInterval(timer);
      params = {};
    },
  };
}

function back() {
  return el("a", { class: "back", href: "#runs" }, "← All runs");
}
