// The shell: which view shows, what the server tells by itself, toasts, and whether everything is saved.

import { address, api } from "./api.js";
import { count, el, fill } from "./dom.js";

const VIEWS = {
  label: { module: "./label.js" },
  look: { module: "./look.js", sheets: ["look.css"] },
  runs: { module: "./runs.js", sheets: ["runs.css"] },
  finish: { module: "./finish.js", sheets: ["runs.css"] },
};
const PATIENCE = 2000; // ms between two attempts to reach a server that is gone
const listeners = new Map();
const byId = (id) => document.getElementById(id);

const studio = {
  api,
  el,
  state: { project: { name: "", images: 0, folder: "" }, n: -1, classes: [], marks: {}, labeled: 0, keys: {}, model: null, progress: null },
  tab: ownTab(),
  waiting: 0, // answers that are not on disk
  on(event, listener) {
    if (!listeners.has(event)) listeners.set(event, new Set());
    listeners.get(event).add(listener);
    return () => listeners.get(event).delete(listener);
  },
  emit(event, value) {
    for (const listener of listeners.get(event) ?? []) listener(value);
  },
  go(view, params = {}) {
    location.hash = address(view, params);
  },
  toast,
  openImages({ title, query, ids }) {
    if (ids) studio.chosen = { title, ids: [...ids] };
    studio.go("label", { ...(ids ? { view: "chosen" } : query), title, k: Date.now(), mode: "grid" });
  },
  className: (id) => studio.state.classes.find((each) => each.id === id)?.name ?? "",
  classColor: (id) => getComputedStyle(document.documentElement).getPropertyValue(`--c${((id % 10) + 10) % 10}`).trim(),
  picture: (id, side) => `${side ? `/thumb/${id}/${side}` : `/image/${id}`}?v=${studio.state.project.version ?? 0}`,
  bar,
  saved,
  refresh,
};

/** Undo belongs to a tab, also after it is loaded again. */
function ownTab() {
  const made = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const kept = sessionStorage.getItem("epass-tab") ?? made;
    sessionStorage.setItem("epass-tab", kept);
    return kept;
  } catch {
    return made;
  }
}

/** A sentence for a moment. A new one takes the place of the last one, but warnings stay until they were read. */
function toast(sentence, kind = "info") {
  if (!sentence) return;
  const home = byId("toasts");
  for (const each of [...home.children]) if (each.matches(".info") || each.dataset.sentence === sentence || home.children.length > 2) each.remove();
  const close = () => { made.remove(); if (!home.children.length) home.hidePopover(); };
  const button = el("button", { type: "button", class: "quiet square", aria: { label: "Dismiss" }, onclick: close }, "×");
  const made = el("div", { class: `toast ${kind}`, data: { sentence } }, el("span", {}, sentence), button);
  home.append(made);
  if (home.matches(":popover-open")) home.hidePopover();
  home.showPopover(); // over a window that was opened meanwhile, too
  setTimeout(close, kind === "info" ? 3500 : 9000);
}

/** A sentence that stays until `bar("")`. */
function bar(sentence) {
  byId("bar").hidden = !sentence;
  byId("bar").textContent = sentence;
}

/** Say whether every answer is on disk. */
function saved(waiting) {
  studio.waiting = waiting;
  const said = waiting ? `saving ${count(waiting, "answer")}` : "saved";
  byId("saved").textContent = said;
  byId("saved").classList.toggle("waiting", waiting > 0);
}

let asked = null;
/** Take the state anew, several wishes in one. */
function refresh(after = 150) {
  asked ??= new Promise((done) => setTimeout(done, after)).then(async () => {
    asked = null;
    const fresh = await api.get("/api/state");
    if (fresh.project.version !== api.version) {
      if (!studio.waiting) location.reload(); // an answer that was not saved would be lost
      return;
    }
    if (fresh.n < studio.state.n) return;
    Object.assign(studio.state, fresh);
    studio.emit("state", studio.state);
  }).catch(() => {});
  return asked;
}

let stream = null, lost = false;
function listen() {
  stream?.close();
  stream = new EventSource("/api/events");
  const take = (event, change) => stream.addEventListener(event, (message) => {
    const value = JSON.parse(message.data);
    change(value);
    studio.emit(event, value);
  });
  take("labels", (value) => { studio.state.n = Math.max(studio.state.n, value.n); refresh(); });
  take("classes", ({ classes, keys = studio.state.keys }) => {
    Object.assign(studio.state, { classes, keys });
    studio.emit("state", studio.state);
  });
  take("model", (value) => { studio.state.model = value; });
  take("progress", (value) => { studio.state.progress = value.done === true ? null : value; showProgress(); });
  take("job", () => {});
  take("notice", (value) => toast(value.sentence, value.kind));
  stream.onopen = async () => {
    if (!lost) return;
    lost = false;
    if (!studio.waiting) bar("");
    await refresh(0);
    studio.emit("reconnect");
  };
  const mine = stream;
  stream.onerror = async () => {
    lost = true;
    const why = await api.get("/api/state").then(() => "", (error) => error.message);
    if (stream !== mine) return;
    if (why && !studio.waiting) bar(why); // else the bar says what is not saved
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, PATIENCE);
  };
}

/** A browser has few connections to one server: a tab that nobody sees gives its own back, and catches up later. */
function listenWhileSeen() {
  if (document.hidden) { stream.close(); lost = true; }
  else listen();
}

function showProgress() {
  const { progress } = studio.state, line = byId("progress");
  line.hidden = !progress;
  if (!progress) return;
  const { what, done, total } = progress;
  const meter = el("progress", { max: 1, value: total ? done / total : 0, aria: { label: what } });
  fill(line, el("span", {}, total ? `${what} ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : what), meter);
}

const mounted = new Map();
let current = null;

async function loadSheet(name) {
  if (document.querySelector(`link[href="/static/${name}"]`)) return;
  const link = el("link", { rel: "stylesheet", href: `/static/${name}` });
  await new Promise((done) => { link.onload = link.onerror = done; document.head.append(link); });
}

async function mountView(name) {
  const [{ mount }] = await Promise.all([import(VIEWS[name].module), ...(VIEWS[name].sheets ?? []).map(loadSheet)]);
  const root = el("section", { class: `view view-${name}`, data: { view: name }, hidden: true });
  byId("main").append(root);
  return { root, view: mount(root, studio) };
}

async function route() {
  const [said, query] = location.hash.slice(1).split("?");
  const name = said in VIEWS ? said : "label";
  if (!mounted.has(name)) mounted.set(name, mountView(name));
  let next;
  try {
    next = await mounted.get(name);
  } catch (error) {
    mounted.delete(name);
    toast(`This view could not be opened: ${error.message}`, "warning");
    return;
  }
  if (location.hash.slice(1).split("?")[0] !== said) return; // somebody went on meanwhile
  if (current && current !== next) { current.view.hide(); current.root.hidden = true; }
  current = next;
  current.root.hidden = false;
  for (const link of document.querySelectorAll("[data-view][href]")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${studio.state.project.name || "epass"} · ${name}`;
  current.view.show(Object.fromEntries(new URLSearchParams(query)));
}

async function start() {
  byId("theme").addEventListener("click", () => document.dispatchEvent(new Event("choose-theme")));
  document.addEventListener("theme", () => studio.emit("theme"));
  byId("help").addEventListener("click", () => studio.emit("help"));
  document.querySelector("[data-jump]").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
  studio.on("state", () => { byId("project").textContent = studio.state.project.name; });
  while (studio.state.n < 0) {
    try {
      Object.assign(studio.state, await api.get("/api/state"));
    } catch (error) {
      bar(error.message);
      if (!error.passing) return;
      await new Promise((done) => setTimeout(done, PATIENCE));
    }
  }
  bar("");
  api.version = studio.state.project.version;
  studio.emit("state", studio.state);
  saved(0);
  showProgress();
  listen();
  document.addEventListener("visibilitychange", listenWhileSeen);
  addEventListener("hashchange", route);
  await route();
}

start();
