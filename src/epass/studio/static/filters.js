// Which images the label view shows: tabs, search, and a banner where another view chose them.

import { count, el, fill } from "./dom.js";

const TABS = [
  ["suggested", "Suggested", () => null], ["unlabeled", "Unlabeled", left], ["labeled", "Labeled", (state) => state.labeled],
  ["unsure", "Unsure", (state) => state.marks.unsure ?? 0], ["skip", "Skipped", (state) => state.marks.skip ?? 0],
  ["none", "None of these", (state) => state.marks.none ?? 0], ["all", "All", () => null],
];

/** How many images have neither label nor mark. */
export function left(state) {
  const marked = Object.values(state.marks).reduce((sum, each) => sum + each, 0);
  return Math.max(0, state.project.images - state.labeled - marked);
}

const FILTER = ["view", "class", "true", "guess", "q", "title", "k"]; // k: each time that another view chose images

/** The part of an address that says which images. */
export function filterOf(params) {
  const said = Object.fromEntries(FILTER.filter((name) => params[name]).map((name) => [name, String(params[name])]));
  return { view: "suggested", ...said };
}

export function makeFilters(studio, { choose }) {
  const tabs = el("div", { class: "tabs", role: "group", aria: { label: "Which images" } });
  const classes = el("select", { class: "tab-class", aria: { label: "Labeled as" }, hidden: true });
  const search = el("input", { type: "search", placeholder: "Search", aria: { label: "Search names of files" } });
  const banner = el("div", { class: "banner", hidden: true });
  const element = el("div", { class: "filters" }, tabs, classes, el("div", { class: "search" }, search));
  const opener = el("button", { type: "button", class: "tab search-opener", onclick: focusSearch }, "Search…");
  let current = filterOf({}), before = filterOf({}), length = 0;

  classes.addEventListener("change", () => choose(classes.value ? { view: "class", class: classes.value } : { view: "labeled" }));
  function focusSearch() { element.classList.add("searching"); search.focus(); search.select(); }
  search.addEventListener("blur", () => element.classList.toggle("searching", search.value !== ""));
  let typing = 0;
  const find = () => {
    clearTimeout(typing);
    if (search.value.trim() === (current.q ?? "")) return;
    if (!current.q) before = current;
    choose(search.value.trim() ? { view: "all", q: search.value.trim() } : before);
  };
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(find, 250); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { find(); search.blur(); }
    if (event.key === "Escape") { search.value = ""; find(); search.blur(); }
  });

  function draw() {
    const { state } = studio, focused = tabs.contains(document.activeElement) && document.activeElement.dataset.tab;
    const ours = current.view === "class" ? "labeled" : current.q ? null : current.view;
    fill(tabs, TABS.map(([view, words, number]) => {
      const held = number(state);
      return el("button", { type: "button", class: "tab", data: { tab: view }, aria: { pressed: String(view === ours) }, onclick: () => choose({ view }) },
        words, held !== null && el("span", { class: "number faint" }, held.toLocaleString("en")));
    }), opener);
    if (focused) tabs.querySelector(`[data-tab="${focused}"]`)?.focus();
    classes.hidden = !["labeled", "class"].includes(current.view);
    if (document.activeElement !== classes) {
      fill(classes, el("option", { value: "" }, "every class"), state.classes.map((each) => el("option", { value: each.id }, `${each.name} (${each.count})`)));
      classes.value = current.class && current.view === "class" ? current.class : "";
    }
    if (document.activeElement !== search) search.value = current.q ?? "";
    const known = TABS.some(([view]) => view === current.view) || current.view === "class";
    banner.hidden = known && !current.title && !current.q;
    if (!banner.hidden) {
      const words = current.q ? `Names with “${current.q}”` : current.title || "Chosen images";
      const back = el("button", { type: "button", onclick: () => choose(current.q ? before : { view: "suggested" }) }, current.q ? "Clear the search" : "Back to suggested images");
      fill(banner, el("span", {}, el("b", {}, words), el("span", { class: "faint" }, ` · ${count(length, "image")}`)), back);
    }
  }

  studio.on("state", draw);
  return {
    element, banner,
    show(filter, shown) { current = filter; length = shown; draw(); },
    focusSearch,
  };
}
