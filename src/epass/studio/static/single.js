// One image at a time, large; the next ones are loaded before they are asked for.

import { el, fill, keyName, percent } from "./dom.js";

const AHEAD = 2;
const LARGER = 3, LEAST = 320; // times a small photo may grow, and px that it may always have: more shows only blur
const MARKS = { skip: "Skipped", unsure: "Unsure", none: "None of these" };

export function makeSingle(studio, rows, { act, key }) {
  const stage = el("div", { class: "stage" });
  const name = el("span", { class: "single-name" });
  const why = el("span", { class: "single-why faint" });
  const place = el("span", { class: "single-place faint number" });
  const now = el("div", { class: "single-now", aria: { live: "polite" } });
  const tools = el("div", { class: "single-tools" });
  const element = el("div", { class: "single" },
    stage, el("div", { class: "single-line" }, name, why, place), el("div", { class: "single-line" }, now, tools));
  const loaded = new Map(); // id -> a frame with its <img>
  let shown = null, offered = null;

  function load(id) {
    if (loaded.has(id)) return loaded.get(id);
    const image = el("img", { alt: "", decoding: "async", draggable: "false" });
    const frame = el("div", {}, image);
    image.onerror = () => { if (loaded.get(id) === frame) fill(frame, el("p", { class: "faint" }, "This file cannot be read as an image.")); };
    image.onload = () => {
      const limit = (side) => `${Math.max(LEAST, LARGER * side)}px`;
      image.style.maxWidth = limit(image.naturalWidth);
      image.style.maxHeight = limit(image.naturalHeight);
    };
    image.src = studio.picture(id);
    loaded.set(id, frame);
    return frame;
  }

  /** Show an image, and load those that come next; the others are let go. */
  function show(ids, at) {
    const id = ids[at];
    const near = new Set(ids.slice(Math.max(0, at - 1), at + AHEAD + 1));
    for (const [each, frame] of loaded) if (!near.has(each)) { loaded.delete(each); frame.querySelector("img")?.removeAttribute("src"); }
    if (shown !== id) offered = null;
    shown = id;
    const frame = load(id);
    if (stage.firstChild !== frame) fill(stage, frame);
    for (const each of near) { load(each); rows.get(each); }
    place.textContent = `${(at + 1).toLocaleString("en")} of ${ids.length.toLocaleString("en")}`;
    describe();
  }

  /** A guess that is shown stays as it is, so that Enter never accepts another one than was read. */
  function describe() {
    if (shown === null) return;
    const row = rows.get(shown);
    if (!row) { fill(now); name.textContent = ""; return; }
    loaded.get(shown).querySelector("img")?.setAttribute("alt", row.name);
    name.textContent = row.name;
    why.textContent = row.label === null && !row.mark ? row.why ?? "" : "";
    if (offered === null && row.guess !== null && studio.className(row.guess)) offered = { label: row.guess, confidence: row.confidence };
    fill(now, said(row), chip(row));
  }

  function said(row) {
    if (row.label !== null) {
      const dot = el("span", { class: "dot", style: { "--dot": studio.classColor(row.label) } });
      return el("span", { class: "answer" }, dot, el("b", {}, studio.className(row.label)));
    }
    return row.mark && el("span", { class: "answer" }, MARKS[row.mark]);
  }

  function chip(row) {
    if (!offered || row.label === offered.label) return null;
    const words = el("span", {}, studio.className(offered.label), " ", el("span", { class: "number" }, percent(offered.confidence)));
    return el("button", { type: "button", class: "chip", title: "Accept the model's guess", onclick: () => act("accept") },
      el("kbd", {}, keyName(key("accept"))), words);
  }

  let drawnKeys = "";
  function drawTools() {
    const keys = JSON.stringify(studio.state.keys);
    if (keys === drawnKeys) return;
    drawnKeys = keys;
    const tool = (action, words) =>
      el("button", { type: "button", title: words, aria: { label: words }, onclick: () => act(action), data: { action } },
        el("kbd", {}, keyName(key(action))), el("span", {}, words));
    fill(tools, tool("previous", "Back"), tool("skip", "Skip"), tool("unsure", "Unsure"), tool("none", "None of these"),
      tool("clear", "Clear"), tool("undo", "Undo"), tool("next", "Next"));
  }

  rows.onChange((ids) => { if (!element.hidden && (!ids || ids.includes(shown))) describe(); });
  studio.on("state", () => { drawTools(); describe(); });
  drawTools();
  return { element, show, get offered() { return offered; } };
}
