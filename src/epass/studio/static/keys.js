// Which key does what; every key can be seen and changed.

import { dialog, el, fill, keyName } from "./dom.js";

export const ACTIONS = {
  accept: ["Enter", "Accept the model's guess"], skip: ["s", "Skip for now"], unsure: ["x", "Mark as unsure"],
  none: ["n", "None of these classes"], clear: ["c", "Clear the answer (⌫ does it, too)"], undo: ["u", "Undo (Ctrl Z does it, too)"],
  next: ["ArrowRight", "Next image"], previous: ["ArrowLeft", "Image before"],
  grid: ["g", "Grid or single image"], search: ["/", "Search names of files"], help: ["h", "This list"],
};
const FIXED = [
  ["↑ ↓ ← →", "In the grid: move; with Shift: select"], ["Space", "In the grid: select or not"], ["Ctrl A", "In the grid: select all"],
  ["Esc", "Select nothing; leave a field"],
];

/** The key of an action. */
export const keyOf = (studio, action) => studio.state.keys[action] ?? ACTIONS[action][0];

/** What a key press means: {action} or {label}, or null. */
export function meaning(studio, event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) return key === "z" && !event.shiftKey ? { action: "undo" } : key === "a" ? { action: "all" } : null;
  if (event.altKey) return null;
  const held = studio.state.classes.find((each) => each.key && each.key.toLowerCase() === key);
  if (held) return { label: held.id };
  const action = Object.keys(ACTIONS).find((each) => keyOf(studio, each).toLowerCase() === key.toLowerCase());
  if (action) return { action };
  return key === "Backspace" ? { action: "clear" } : key === "?" ? { action: "help" } : null;
}

/** Wait for one key inside of a button; null for Escape. */
export function readKey(button) {
  return new Promise((done) => {
    fill(button, "Press a key…");
    button.focus();
    const end = (key) => { button.removeEventListener("keydown", press, true); button.removeEventListener("blur", leave); done(key); };
    const leave = () => end(null);
    const press = (event) => {
      if (["Shift", "Control", "Alt", "Meta", "Tab"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      end(event.key === "Escape" ? null : event.key.length === 1 ? event.key.toLowerCase() : event.key);
    };
    button.addEventListener("keydown", press, true);
    button.addEventListener("blur", leave);
  });
}

/** The list of all keys, where each can be changed. */
export function showKeys(studio, writer) {
  if (document.querySelector("dialog[open]")) return;
  const body = el("div", { class: "keys" });
  const held = (button, key) => fill(button, key ? el("kbd", {}, keyName(key)) : "none");

  function line(words, key, save, dot) {
    const button = el("button", { type: "button", class: "quiet", title: "Change this key", aria: { label: `Key for ${words}: ${key}. Change it` } });
    held(button, key);
    button.addEventListener("click", async () => {
      const said = await readKey(button);
      held(button, key);
      if (said === null || said === key) return;
      try {
        await save(said);
        draw();
      } catch (error) {
        studio.toast(error.message, "warning");
      }
    });
    return el("li", {}, el("span", { class: "keys-words" }, dot, words), button);
  }

  function draw() {
    const classes = studio.state.classes.map((each) => line(each.name, each.key,
      (key) => writer.change("/api/classes", { do: "key", id: each.id, key }), el("span", { class: "dot", style: { "--dot": studio.classColor(each.id) } })));
    const actions = Object.entries(ACTIONS).map(([action, [, words]]) => line(words, keyOf(studio, action), (key) => writer.change("/api/keys", { action, key })));
    const fixed = FIXED.map(([key, words]) => el("li", {}, el("span", { class: "keys-words" }, words), el("kbd", {}, key)));
    fill(body, classes.length > 0 && [el("h3", {}, "Classes: assign and go on"), el("ul", {}, classes)],
      el("h3", {}, "Actions"), el("ul", {}, actions), el("h3", {}, "Always"), el("ul", {}, fixed));
  }

  draw();
  dialog("Keys", el("p", { class: "faint" }, "Click on a key to change it. Double click an image of the grid to see it large."), body);
}
