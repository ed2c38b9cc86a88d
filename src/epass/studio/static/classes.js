// The classes beside the images: assign by click, add, rename, merge, remove, change keys.

import { count, dialog, el, fill, keyName } from "./dom.js";
import { readKey } from "./keys.js";

export function makeClasses(studio, writer, { assign, done }) {
  const list = el("ul", { class: "classes" });
  const field = el("input", { type: "text", maxlength: 100, autocomplete: "off", aria: { label: "Name of a new class" }, placeholder: "New class…" });
  const hint = el("p", { class: "small faint class-hint", hidden: true }, "Enter adds it. Enter again, or Esc: begin labeling.");
  const form = el("form", { class: "class-add" }, field, el("button", { type: "submit" }, "Add"));
  const element = el("section", { class: "class-panel", aria: { label: "Classes" } }, el("h2", {}, "Classes"), list, form, hint);

  const warn = (error) => studio.toast(error.message, "warning");
  const change = (body) => writer.change("/api/classes", body);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) { if (studio.state.classes.length) done(); return; }
    field.value = "";
    try {
      await change({ do: "add", name });
    } catch (error) {
      if (!field.value) field.value = name; // so that it can be mended
      warn(error);
    }
  });
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") done(); });
  field.addEventListener("focus", () => { hint.hidden = false; });
  field.addEventListener("blur", () => { hint.hidden = true; });

  function draw() {
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.spot : null;
    fill(list, studio.state.classes.map((each) => el("li", {},
      el("button", { type: "button", class: "class-assign", title: `Assign ${each.name}`, data: { spot: `assign-${each.id}`, label: each.id }, onclick: () => assign(each.id) },
        el("kbd", {}, each.key ? keyName(each.key) : "·"), el("span", { class: "dot", style: { "--dot": studio.classColor(each.id) } }), el("span", { class: "class-name" }, each.name)),
      el("button", { type: "button", class: "quiet class-count number", title: "Show these images", aria: { label: `Show the ${count(each.count, "image")} of ${each.name}` },
        data: { spot: `count-${each.id}` }, onclick: () => studio.go("label", { view: "class", class: each.id, mode: "grid" }) }, each.count.toLocaleString("en")),
      el("button", { type: "button", class: "quiet square", title: "Rename, merge, key", aria: { label: `Change the class ${each.name}` }, data: { spot: `edit-${each.id}`, edit: each.id }, onclick: () => edit(each) }, "⋯"))));
    if (focused) list.querySelector(`[data-spot="${focused}"]`)?.focus();
  }

  /** One window for all that can be done to a class. */
  function edit(chosen) {
    const others = studio.state.classes.filter((each) => each.id !== chosen.id);
    const name = el("input", { type: "text", maxlength: 100, value: chosen.name, aria: { label: "Name" } });
    const key = el("button", { type: "button" }, el("kbd", {}, chosen.key ? keyName(chosen.key) : "none"));
    const into = el("select", { aria: { label: "Merge into" } }, el("option", { value: "" }, "another class…"), others.map((each) => el("option", { value: each.id }, each.name)));
    const merge = el("button", { type: "button", disabled: true }, "Merge");
    const remove = el("button", { type: "button", disabled: chosen.count > 0 }, "Remove");
    const said = (body, words) => async () => {
      try {
        const answer = await change({ id: chosen.id, ...body() });
        studio.toast(answer.said || words);
        shown.close();
      } catch (error) { warn(error); }
    };
    into.addEventListener("change", () => { merge.disabled = !into.value; });
    merge.addEventListener("click", said(() => ({ do: "merge", into: Number(into.value) }), "Merged; undo takes it back."));
    remove.addEventListener("click", said(() => ({ do: "remove" }), "Removed."));
    key.addEventListener("click", async () => {
      const pressed = await readKey(key);
      fill(key, el("kbd", {}, chosen.key ? keyName(chosen.key) : "none"));
      if (pressed !== null) await said(() => ({ do: "key", key: pressed }), "Changed the key.")();
    });
    const rename = el("form", { class: "row" }, name, el("button", { type: "submit", class: "primary" }, "Rename"));
    rename.addEventListener("submit", (event) => { event.preventDefault(); said(() => ({ do: "rename", name: name.value.trim() }), "Renamed.")(); });
    const labeled = count(chosen.count, "label");
    const shown = dialog("Change a class",
      el("div", { class: "edit" },
        el("h3", {}, "Name"), rename,
        el("h3", {}, "Key"), el("div", { class: "row" }, key, el("span", { class: "small faint" }, "Click, then press the new key.")),
        others.length > 0 && [el("h3", {}, "Merge"), el("div", { class: "row" }, into, merge), el("p", { class: "small faint" }, `Its ${labeled} become labels of the other class.`)],
        el("h3", {}, "Remove"), el("div", { class: "row" }, remove, el("span", { class: "small faint" }, chosen.count ? `It has ${labeled}: merge it instead.` : "It has no labels."))));
    name.select();
  }

  studio.on("state", draw);
  studio.on("theme", draw);
  draw();
  /** Show which class an answer went to: the image itself is gone by then. */
  function flash(id) {
    for (const line of list.children) line.classList.remove("flash");
    list.querySelector(`[data-label="${id}"]`)?.parentElement.classList.add("flash");
  }

  return { element, flash, focus: () => field.focus() };
}
