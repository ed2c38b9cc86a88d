// The map with what belongs to it: colors and legend, tools, the card of the image under the pointer, and what can be
// done with a selection.

import { count, percent } from "./dom.js";
import { keep } from "./keep.js";
import { EmbeddingMap } from "./map.js";

export function mountMap(studio) {
  const { el, api, state } = studio;
  const labels = new Map();
  const marks = new Map();
  const guesses = new Map();
  const hidden = new Set();
  let selection = new Set();
  let ids = null; // null: there is no map yet
  let byGuess = true;
  let visible = false;
  const late = new Set(); // what has to be read again when the map is shown: "labels", "guesses", "all"
  let drawn = []; // the coordinates on the canvas

  const about = "Map of all images: arrows move, plus and minus zoom, 0 shows all, drag to select";
  const canvas = el("canvas", { class: "map-canvas", tabindex: 0, role: "application", aria: { label: about, describedby: "map-words" } });
  const card = el("div", { class: "map-card", hidden: true });
  const words = el("p", { id: "map-words", class: "unseen" });
  const legend = el("ul", { class: "map-legend" });
  const bar = el("div", { class: "map-bar", hidden: true, role: "region", aria: { label: "Selected images", live: "polite" } });
  const empty = el("p", { class: "empty" });
  const stage = el("div", { class: "map-stage" }, canvas, card, bar);
  const side = el("div", { class: "map-side" });
  const body = el("div", { class: "map-body" }, stage, side);
  const node = el("section", { class: "look-panel map-panel" }, el("h2", {}, "Map"), empty, body);

  const map = new EmbeddingMap(canvas, { thumb: (id) => studio.picture(id, 160), select: choose, hover });

  side.append(
    choice("Color by", [["guess", "guess"], ["label", "label"]], "guess", (value) => {
      byGuess = value === "guess";
      paint();
    }),
    legend,
    choice("Drag to", [["select", "select"], ["move", "move"]], "select", (value) => {
      map.moving = value === "move";
      canvas.classList.toggle("moving", map.moving);
    }),
    el("div", { class: "map-tools" },
      tool("−", "Zoom out", () => map.zoomBy(1 / 1.5)),
      tool("+", "Zoom in", () => map.zoomBy(1.5)),
      tool("Show all", "", () => map.fit()),
      tool("Select what is in view", "", () => choose(map.inView(), false)),
    ),
    el("p", { class: "faint small" }, "Alike images lie near each other. Drag around some to label them at once; zoom in to see them."),
    words,
  );

  function tool(text, label, onclick) {
    return el("button", { type: "button", onclick, aria: label ? { label } : {} }, text);
  }

  function choice(title, options, chosen, change) {
    const group = el("fieldset", { class: "switch" }, el("legend", {}, title));
    for (const [value, text] of options) {
      const input = el("input", { type: "radio", name: `map-${title}`, value, checked: value === chosen });
      input.addEventListener("change", () => change(value));
      group.append(el("label", {}, input, el("span", {}, text)));
    }
    return group;
  }

  // what is known of the images

  async function listed(view, id = "") {
    const which = id === "" ? "" : `&class=${id}`;
    return (await api.get(`/api/ids?view=${view}${which}`)).ids;
  }

  async function readLabels() {
    const found = await Promise.all(state.classes.map(({ id }) => listed("class", id)));
    const noted = await Promise.all(["skip", "unsure", "none"].map((mark) => listed(mark)));
    labels.clear();
    marks.clear();
    state.classes.forEach(({ id }, k) => found[k].forEach((image) => labels.set(image, id)));
    ["skip", "unsure", "none"].forEach((mark, k) => noted[k].forEach((image) => marks.set(image, mark)));
  }

  async function readGuesses() {
    const found = state.model ? await Promise.all(state.classes.map(({ id }) => listed("guessed", id))) : [];
    guesses.clear();
    found.forEach((images, k) => images.forEach((image) => guesses.set(image, state.classes[k].id)));
  }

  function take(rows) {
    const put = (held, id, value) => (value === null || value === undefined ? held.delete(id) : held.set(id, value));
    for (const row of rows) {
      put(labels, row.id, row.label);
      put(marks, row.id, row.mark);
      if (row.guess !== undefined) put(guesses, row.id, row.guess);
    }
  }

  async function readAll() {
    const found = await api.get("/api/look/map").catch(() => null);
    ids = found?.xy?.length ? (found.ids ?? Array.from({ length: found.xy.length / 2 }, (_, i) => i)) : null;
    empty.hidden = ids !== null;
    body.hidden = ids === null;
    empty.textContent = "The map appears by itself, when all images have been looked at and the model has a moment: a minute or two.";
    if (!ids) return;
    await Promise.all([readLabels(), readGuesses()]);
    map.resize();
    if (drawn.length !== found.xy.length || found.xy.some((value, k) => value !== drawn[k])) map.setPoints(ids, found.xy);
    drawn = found.xy;
    paint();
  }

  // colors and legend

  const groupOf = (id) => (byGuess ? (labels.get(id) ?? guesses.get(id)) : labels.get(id));

  function paint() {
    if (!ids || !visible) return;
    const place = new Map(state.classes.map(({ id }, k) => [id, k]));
    const groups = Int32Array.from(ids, (id) => place.get(groupOf(id)) ?? -1);
    const style = getComputedStyle(document.documentElement);
    const token = (name) => style.getPropertyValue(name).trim();
    const palette = state.classes.map(({ id }) => studio.classColor(id));
    const look = { palette, none: token("--faint"), ink: token("--ink"), accent: token("--accent"), panel: token("--panel") };
    const away = new Set([...hidden].map((id) => (id === null ? -1 : place.get(id))));
    map.setLook(groups, away, look);
    const counts = new Map();
    for (const group of groups) counts.set(group, (counts.get(group) ?? 0) + 1);
    const entries = state.classes.map(({ id, name }, k) => [id, name, counts.get(k) ?? 0]);
    entries.push([null, byGuess ? "no guess yet" : "no label yet", counts.get(-1) ?? 0]);
    paintLegend(entries);
    const said = entries.filter(([, , many]) => many).map(([, name, many]) => `${many.toLocaleString("en")} ${name}`);
    words.textContent = `${count(ids.length, "image")} by ${byGuess ? "label, or guess where there is none" : "label"}: ${said.join(", ")}.`;
  }

  function paintLegend(entries) {
    keep(legend, entries.map(([id, name, many]) => {
      const shown = !hidden.has(id);
      const color = id === null ? "" : studio.classColor(id);
      return [[id, name, many, shown, color], () => legendEntry(id, name, many, shown, color)];
    }));
  }

  function legendEntry(id, name, many, shown, color) {
    const toggle = () => {
      if (!hidden.delete(id)) hidden.add(id);
      paint();
    };
    const told = { type: "button", class: "legend", data: { group: id }, aria: { pressed: shown }, title: shown ? "Hide these" : "Show these" };
    return el("li", {}, el("button", { ...told, onclick: toggle }, el("span", { class: "dot", style: color ? { "--dot": color } : {} }),
      el("span", { class: "legend-name" }, name), el("span", { class: "number" }, many.toLocaleString("en"))));
  }

  // the image under the pointer

  let hovered = null;
  async function hover(id, x, y) {
    if (id === hovered && !card.hidden) return place(x, y);
    hovered = id;
    card.hidden = id === null;
    if (id === null) return undefined;
    const name = el("strong", {}, "…");
    const facts = el("span", {});
    card.replaceChildren(el("img", { src: studio.picture(id, 160), alt: "" }), name, facts);
    place(x, y);
    const { rows } = await api.post("/api/rows", { ids: [id] });
    if (hovered !== id || !rows.length) return undefined;
    const [row] = rows;
    name.textContent = row.name;
    const sure = row.confidence === null ? "" : `, ${percent(row.confidence)} sure`;
    const said = [];
    if (row.label !== null) said.push(`label ${studio.className(row.label)}`);
    if (row.guess !== null) said.push(`guess ${studio.className(row.guess)}${sure}`);
    facts.textContent = said.join(" · ") || "no label yet";
    return place(x, y);
  }

  function place(x, y) {
    const left = Math.min(x + 16, stage.clientWidth - card.offsetWidth - 8);
    const above = y + 16 + card.offsetHeight > stage.clientHeight;
    card.style.left = `${Math.max(8, left)}px`;
    card.style.top = `${Math.max(8, above ? y - card.offsetHeight - 12 : y + 16)}px`;
  }

  // the selection

  function choose(chosen, add) {
    selection = new Set([...(add ? selection : []), ...chosen].sort((a, b) => a - b));
    map.setSelection(selection);
    if (selection.size) offer();
    else bar.hidden = true;
  }

  function offer() {
    const labeled = [...selection].filter((id) => labels.has(id)).length;
    const again = el("input", { type: "checkbox", id: "map-again" });
    const menu = el("div", { class: "map-menu", hidden: true });
    menu.append(...state.classes.map(({ id, name }) => el("button", { type: "button", onclick: () => label(id, again.checked) },
      el("span", { class: "dot", style: { "--dot": studio.classColor(id) } }), name)));
    const open = el("button", { type: "button", class: "primary", aria: { expanded: "false" } }, "Label as…");
    const toggle = (shown) => {
      menu.hidden = !shown;
      open.setAttribute("aria-expanded", String(shown));
      (shown ? menu.querySelector("button") : open)?.focus();
    };
    open.addEventListener("click", () => toggle(menu.hidden));
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      toggle(false);
    });
    const title = `${count(selection.size, "image")} chosen on the map`;
    bar.replaceChildren(
      el("strong", {}, count(selection.size, "image")),
      state.classes.length ? el("span", { class: "map-open" }, open, menu) : el("span", {}, "Add a class first to label them."),
      tool("Show in grid", "", () => studio.openImages({ title, ids: [...selection] })),
      tool("Clear", "Clear the selection", () => choose([], false)),
    );
    if (labeled && state.classes.length) {
      bar.append(el("label", { class: "map-again" }, again, `also the ${labeled.toLocaleString("en")} that ${labeled === 1 ? "has" : "have"} a label`));
    }
    bar.hidden = false;
  }

  async function label(classId, again) {
    const chosen = [...selection].filter((id) => again || !labels.has(id));
    if (!chosen.length) {
      studio.toast("All of these have a label already: tick the box to change them.", "info");
      return;
    }
    for (const button of bar.querySelectorAll("button")) button.disabled = true;
    const changes = chosen.map((id) => ({
      id, label: classId, mark: null, seen: { label: labels.get(id) ?? null, mark: marks.get(id) ?? null },
    }));
    try {
      await api.post("/api/answers", { tab: studio.tab, changes });
    } catch (error) {
      take(error.body?.rows ?? []);
      studio.toast(error.message, "warning");
      paint();
      offer();
      return;
    }
    take(chosen.map((id) => ({ id, label: classId, mark: null })));
    choose([], false);
    paint();
    const undo = tool("Undo", "", takeBack);
    bar.replaceChildren(el("span", {}, `${count(chosen.length, "image")} labeled as ${studio.className(classId)}.`), undo,
      tool("Done", "", () => choose([], false)));
    bar.hidden = false;
    undo.focus();
  }

  async function takeBack() {
    try {
      await api.post("/api/undo", { tab: studio.tab });
      choose([], false);
    } catch (error) {
      studio.toast(error.message, "warning");
    }
  }

  // news

  async function refresh(...what) {
    what.forEach((each) => late.add(each));
    if (!visible || !late.size) return;
    const [all, ...parts] = [!ids || late.has("all"), late.has("labels"), late.has("guesses")];
    late.clear();
    try {
      if (all) await readAll();
      else await Promise.all([parts[0] && readLabels(), parts[1] && readGuesses()]);
      paint();
    } catch (error) {
      studio.toast(error.message, "warning");
    }
  }

  studio.on("labels", ({ rows }) => {
    if (!rows) return refresh("labels");
    take(rows);
    return paint();
  });
  studio.on("classes", () => refresh("labels"));
  studio.on("model", () => refresh("guesses"));
  studio.on("progress", ({ done }) => (done === true && !ids ? refresh("all") : undefined));
  studio.on("reconnect", () => refresh("all"));
  studio.on("theme", paint);

  return {
    node,
    show() {
      visible = true;
      refresh(...(ids ? [] : ["all"]));
      requestAnimationFrame(() => map.resize());
    },
    hide() {
      visible = false;
      hover(null);
    },
  };
}
