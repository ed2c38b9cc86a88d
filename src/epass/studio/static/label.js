// The label view: a list of images, looked at one by one or as a grid, and what a person says about them.

import { address } from "./api.js";
import { makeClasses } from "./classes.js";
import { count, el, fill } from "./dom.js";
import { filterOf, left, makeFilters } from "./filters.js";
import { makeGrid } from "./grid.js";
import { keyOf, meaning, showKeys } from "./keys.js";
import { makeModel } from "./model.js";
import { makeRows } from "./rows.js";
import { makeSingle } from "./single.js";
import { makeWriter } from "./writer.js";

const FEW = 20; // suggestions ahead below which new ones are asked for
const KEPT = 200; // images behind that a reload finds again
const MARKS = ["skip", "unsure", "none"];
const CHANGING = ["suggested", "unlabeled"]; // lists that answered images leave

export function mount(root, studio) {
  const rows = makeRows(studio), writer = makeWriter(studio, rows);
  const single = makeSingle(studio, rows, { act: (action) => queue({ action }), key: (action) => keyOf(studio, action) });
  const grid = makeGrid(studio, rows, { open: (at) => { goTo(at); setMode("single"); }, changed: gridChanged });
  const classes = makeClasses(studio, writer, { assign: (label) => queue({ label }), done: focusImages });
  const filters = makeFilters(studio, { choose });
  const empty = el("div", { class: "empty", hidden: true });
  const switcher = el("button", { type: "button", title: "Grid or single image (g)", onclick: () => queue({ action: "grid" }) });
  const size = el("input", { type: "range", min: 96, max: 320, step: 16, value: kept("size") ?? 160, aria: { label: "Size of the images" } });
  const chosen = el("div", { class: "chosen small", role: "status" });
  const images = el("div", { class: "images", tabindex: -1 }, single.element, grid.element, empty);
  root.append(
    el("div", { class: "label-main" }, el("div", { class: "label-tools" }, filters.element, el("div", { class: "modes" }, size, switcher)), filters.banner, images, chosen),
    el("aside", { class: "label-side" }, classes.element, makeModel(studio)));

  let filter = null, ids = [], at = 0, seen = 0, mode = kept("mode") ?? "single", visible = false, work = Promise.resolve();

  size.addEventListener("input", () => { grid.setSize(Number(size.value)); keep("size", size.value); });
  size.addEventListener("pointerup", focusImages);
  grid.setSize(Number(size.value));

  // ---- the list
  /** Show other images, or the same list anew. */
  function choose(next) {
    if (key(filterOf(next)) === key(filter)) load(filter);
    else studio.go("label", { ...next, mode });
  }

  /** Ask for a list. `past` is what this tab remembers of it: the images before the place where it was, and that place. */
  async function load(next, past = null) {
    filter = next;
    let found = [];
    if (next.view === "chosen") found = kept("chosen")?.ids ?? [];
    else {
      const { title, k, ...asked } = next;
      try {
        found = (await studio.api.get(address("/api/ids", asked))).ids;
      } catch (error) {
        studio.toast(error.message, "warning");
      }
    }
    if (filter !== next) return; // another list was asked for meanwhile
    const before = CHANGING.includes(next.view) && past ? [...past.before, past.at].filter((id) => id !== null) : [];
    ids = [...before, ...without(found, before)];
    const place = ids.indexOf(past?.at);
    at = seen = Math.max(0, place);
    draw();
    grid.setList(ids);
    if (mode === "grid") grid.goTo(at);
  }

  const key = ({ view, ...rest }) => JSON.stringify([view, rest]);
  const without = (list, gone) => { const those = new Set(gone); return list.filter((id) => !those.has(id)); };

  /** New suggestions take the place of those that nobody has seen yet; all others stay where they are. */
  async function renewTail() {
    if (!visible || filter?.view !== "suggested") return;
    const asked = filter;
    let fresh;
    try {
      fresh = (await studio.api.get("/api/ids?view=suggested")).ids;
    } catch { return; }
    if (filter !== asked) return;
    const fixed = ids.slice(0, mode === "grid" ? Math.max(seen + 1, grid.seen) : seen + 2); // the next one is loaded already
    ids = [...fixed, ...without(fresh, fixed)];
    grid.setList(ids, { same: true });
    draw();
  }

  function draw() {
    filters.show(filter ?? filterOf({}), ids.length);
    fill(switcher, el("span", { aria: { hidden: "true" } }, mode === "grid" ? "▢" : "▦"), el("span", { class: "switch-word" }, mode === "grid" ? "Single" : "Grid"));
    size.hidden = mode !== "grid";
    const over = at >= ids.length;
    single.element.hidden = mode !== "single" || over || firstRun();
    grid.element.hidden = mode !== "grid" || !ids.length || firstRun();
    empty.hidden = !single.element.hidden || !grid.element.hidden;
    if (!empty.hidden) fill(empty, firstRun() ? welcome() : nothingLeft());
    if (!single.element.hidden) single.show(ids, at);
    tellSelection();
  }

  function tellSelection() {
    const number = mode === "grid" ? grid.selected.length : 0;
    chosen.textContent = number ? `${count(number, "image")} selected: press the key of a class, or Esc` : "";
  }

  const firstRun = () => studio.state.classes.length === 0;

  function welcome() {
    return el("div", { class: "welcome" }, el("h1", {}, "Name your classes"),
      el("ol", {}, el("li", {}, "Type the name of the first class and press Enter; then the next one."),
        el("li", {}, "For each image press the number of its class. It is saved, and the next image comes by itself."),
        el("li", {}, "From the first labels of two classes on, a model learns along: Enter accepts its guess.")),
      el("p", { class: "faint" }, `${count(studio.state.project.images, "image")} in ${studio.state.project.folder}. Nothing leaves this machine.`),
      el("button", { type: "button", class: "primary", onclick: () => classes.focus() }, "Name the first class"));
  }

  function nothingLeft() {
    const remaining = left(studio.state);
    const words = filter?.view === "suggested" && !remaining ? "Every image has an answer." : ids.length ? "That was the last image of this list." : "There is no image in this list.";
    const go = (view, said) => el("button", { type: "button", onclick: () => studio.go("label", { view, mode }) }, said);
    return el("div", { class: "welcome" }, el("h1", {}, words), el("div", { class: "row" },
      ids.length > 0 && mode === "single" && el("button", { type: "button", onclick: () => goTo(ids.length - 1) }, "Back to the last one"),
      remaining > 0 && go("suggested", "Suggested images"), go("labeled", "Review the labels")));
  }

  // ---- the place
  function goTo(next) {
    at = Math.min(ids.length, Math.max(0, next));
    seen = Math.max(seen, at);
    if (mode === "grid") grid.goTo(at);
    draw();
    if (filter?.view === "suggested" && ids.length - at < FEW && left(studio.state) > ids.length - at) renewTail();
    keepPlace();
  }

  function gridChanged() {
    if (mode !== "grid") return;
    if (ids.length) at = grid.active;
    tellSelection();
    keepPlace();
  }

  /** For a reload: the list and the mode are in the address, the place in the tab's own memory. */
  function keepPlace() {
    if (!visible || !filter) return;
    const before = mode === "single" ? ids.slice(Math.max(0, at - KEPT), at) : [];
    keep("place", { of: key(filter), version: studio.state.project.version, before, at: ids[at] ?? null });
  }

  function remembered(next) {
    const past = kept("place");
    return past?.of === key(next) && past.version === studio.state.project.version ? past : null;
  }

  function setMode(next) {
    mode = next;
    keep("mode", mode);
    at = Math.min(at, Math.max(0, ids.length - 1));
    draw();
    if (mode === "grid") { grid.setSize(Number(size.value)); grid.goTo(at); }
    focusImages();
    keepPlace();
    history.replaceState(null, "", `#${address("label", { ...filter, mode })}`);
  }

  function focusImages() {
    document.activeElement?.blur();
    (mode === "grid" && !grid.element.hidden ? grid.element : images).focus({ preventScroll: true });
  }

  // ---- what a person says
  /** One wish after the other: a key pressed while an answer is being written waits for its image. */
  function queue(wish) {
    if (writer.blocked) return;
    work = work.then(() => perform(wish)).catch((error) => studio.toast(error.message, "warning"));
  }

  const targets = () => (mode === "grid" && grid.selected.length ? grid.selected : ids.slice(at, at + 1));

  async function perform({ label, action, x, y, extend }) {
    if (label !== undefined) return answer((id) => ({ id, label, mark: null }));
    if (MARKS.includes(action)) return answer((id) => ({ id, label: null, mark: action }));
    if (action === "clear") return answer((id) => ({ id, label: null, mark: null }), { stay: true });
    if (action === "accept") return accept();
    if (action === "undo") return undo();
    if (action === "grid") return setMode(mode === "grid" ? "single" : "grid");
    if (action === "move") return grid.step(x, y, extend);
    if (action === "select") return grid.toggle();
    if (action === "all") return mode === "grid" && grid.selectAll();
    return goTo(at + (action === "next" ? 1 : -1));
  }

  async function answer(make, { stay = false } = {}) {
    const those = targets();
    if (!those.length || firstRun()) return;
    const many = mode === "grid" && grid.selected.length > 0;
    const done = await writer.answer(those.map(make));
    if (many && done) grid.clear();
    if (done) classes.flash(make(those[0]).label);
    if (!done || stay || many) { draw(); return; }
    goTo(mode === "grid" ? Math.min(at + 1, ids.length - 1) : at + 1);
  }

  async function accept() {
    const those = targets();
    await rows.need(those);
    const guess = (id) => (mode === "single" ? single.offered?.label : rows.peek(id)?.guess) ?? null;
    const guessed = new Map(those.map((id) => [id, guess(id)]).filter(([, label]) => label !== null));
    if (!guessed.size) {
      studio.toast("There is no guess for this image yet: press the key of its class.");
      return;
    }
    await answer((id) => ({ id, label: guessed.get(id) ?? rows.peek(id).label, mark: guessed.has(id) ? null : rows.peek(id).mark }));
  }

  async function undo() {
    const changed = await writer.undo();
    const place = changed.length === 1 ? ids.indexOf(changed[0].id) : -1;
    if (place >= 0) goTo(place);
    else draw();
  }

  // ---- keys
  const MOVES = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1], PageDown: [0, 4], PageUp: [0, -4] };
  addEventListener("keydown", (event) => {
    const target = event.target, inField = target.matches?.("input, textarea, select");
    if (!visible || event.defaultPrevented || inField || document.querySelector("dialog[open]")) return;
    const button = target.closest?.("button, a");
    if (button && (event.key === "Enter" || event.key === " ")) return; // the button's own
    if (event.key === "Escape") { grid.clear(); return; }
    if (mode === "grid" && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const move = MOVES[event.key];
      if (move) { event.preventDefault(); queue({ action: "move", x: move[0], y: move[1], extend: event.shiftKey }); return; }
      if (event.key === " ") { event.preventDefault(); queue({ action: "select" }); return; }
    }
    const wish = meaning(studio, event);
    if (!wish || (wish.action === "all" && mode !== "grid")) return;
    event.preventDefault();
    if (wish.action === "help") showKeys(studio, writer);
    else if (wish.action === "search") filters.focusSearch();
    else if (!event.repeat || ["next", "previous"].includes(wish.action)) queue(wish); // a key held down answers once
  });

  // a button that was clicked must not take the next Enter for itself; one that was reached by keyboard may
  root.addEventListener("click", (event) => { if (event.detail > 0 && event.target.closest("button") && !document.querySelector("dialog[open]") && !event.target.closest("form, .welcome, .search-opener")) focusImages(); });
  studio.on("help", () => showKeys(studio, writer));
  studio.on("model", renewTail);
  studio.on("reconnect", renewTail);
  let had = studio.state.classes.length;
  studio.on("state", () => {
    if (!filter) return;
    if ((had === 0) !== firstRun()) draw();
    had = studio.state.classes.length;
  });
  studio.on("labels", ({ rows: changed = [] }) => { // images answered elsewhere need not be shown here any more
    if (!CHANGING.includes(filter?.view) || mode !== "single") return;
    const gone = new Set(changed.filter((row) => row.label !== null || row.mark).map((row) => row.id));
    const rest = ids.slice(seen + 1);
    if (rest.some((id) => gone.has(id))) { ids = [...ids.slice(0, seen + 1), ...without(rest, gone)]; grid.setList(ids, { same: true }); draw(); }
  });

  return {
    async show(params) {
      visible = true;
      if (studio.chosen) { keep("chosen", studio.chosen); studio.chosen = null; }
      if (params.mode === "grid" || params.mode === "single") mode = params.mode;
      const next = filterOf(params), bare = Object.keys(params).length === 0;
      if (!filter) await load(next, remembered(next));
      else if (!bare && key(next) !== key(filter)) await load(next);
      else draw();
      if (firstRun()) classes.focus();
      else if (!document.activeElement?.matches("input, select")) focusImages();
      keepPlace();
    },
    hide() { visible = false; },
  };
}

/** What a tab remembers over a reload. */
function keep(name, value) {
  try { sessionStorage.setItem(`epass-${name}`, JSON.stringify(value)); } catch { /* full, or switched off */ }
}

function kept(name) {
  try { return JSON.parse(sessionStorage.getItem(`epass-${name}`)); } catch { return null; }
}
