// What the model believes: the map, where it mixes up classes, images worth a look, and whether its confidence holds.

import { reliability } from "./charts.js";
import { confusionTable } from "./confusion.js";
import { count, percent } from "./dom.js";
import { keep } from "./keep.js";
import { mountMap } from "./mappanel.js";

const LISTS = [
  ["mistakes", "Most confident mistakes", "Labeled images that a model which never saw their label got wrong, the surest first.", "No labeled image was taken for another class when its label was left out."],
  ["suspects", "Suspected label errors", "Your label stands against the images around it: look once more.", "Nothing speaks against your labels, or there are too few of them to say."],
  ["disagreement", "Projectors disagree", "Where the model's own projectors differ most. A low confidence tells mistakes better.", "The model has no projectors yet."],
  ["unlike", "Unlike any other", "Far from everything else: odd ones, broken ones, or a class of their own.", "No image is far from all others."],
];
const PREVIEW = 6;
const ROUGH = 50; // labels below which a reliability diagram is mostly luck

export function mount(root, studio) {
  const { el, api, state } = studio;
  const map = mountMap(studio);
  const how = el("p", { class: "lead" });
  const lists = el("ul", { class: "look-lists" });
  const confusion = el("div");
  const trust = el("div");
  root.replaceChildren(
    el("header", { class: "view-head" }, el("h1", {}, "Look"), how),
    map.node,
    el("section", { class: "look-panel" }, el("h2", {}, "Worth a look"), lists),
    el("div", { class: "look-pair" },
      el("section", { class: "look-panel" }, el("h2", {}, "Which classes it mixes up"), confusion),
      el("section", { class: "look-panel" }, el("h2", {}, "How far to trust its confidence"), trust)),
  );
  root.classList.add("look");
  let visible = false;
  let waiting = 0;

  function missing() {
    const enough = state.classes.filter((each) => each.count >= 2).length;
    if (enough < 2) return "Nothing yet: label at least 2 images in each of two classes, and a model appears by itself.";
    if (!state.model) return "The model is being taught: it appears here in a few seconds.";
    return (!state.model.accuracy && state.model.about) || "Nothing yet: a few more labels in each class are needed to measure this.";
  }

  const nothing = (place) => keep(place, [[missing(), () => el("p", { class: "empty" }, missing())]]);

  function listEntry([view, title, sentence, otherwise], ids) {
    const head = el("span", { class: "list-head" }, el("strong", {}, title), el("span", { class: "number list-count" }, ids.length.toLocaleString("en")));
    const says = el("span", { class: "faint small" }, ids.length ? sentence : state.model || view === "unlike" ? otherwise : "There is no model yet.");
    const few = el("span", { class: "list-images" });
    few.append(...ids.slice(0, PREVIEW).map((id) => el("img", { src: studio.picture(id, 160), alt: "", loading: "lazy" })));
    const open = () => studio.openImages({ title, query: { view } });
    const told = { type: "button", class: "look-list", data: { list: view }, disabled: !ids.length, onclick: open };
    return el("li", {}, el("button", told, head, says, few));
  }

  async function paintConfusion() {
    const found = state.model ? await api.get("/api/look/confusion").catch(() => null) : null;
    if (!found?.labels) return nothing(confusion);
    const names = found.classes.map(studio.className);
    const open = (row, column) => studio.openImages({
      title: `Labeled ${names[row]}, guessed ${names[column]}`,
      query: { view: "cell", true: found.classes[row], guess: found.classes[column] },
    });
    const right = found.matrix.reduce((sum, row, k) => sum + row[k], 0);
    const caption = `${right.toLocaleString("en")} of ${count(found.labels, "label")} guessed right. Rows: your label. Columns: the guess. A cell opens its images.`;
    return keep(confusion, [[[found, names], () => confusionTable({ names, matrix: found.matrix, caption, open })]]);
  }

  async function paintTrust() {
    const found = state.model ? await api.get("/api/look/calibration").catch(() => null) : null;
    if (!found?.labels) return nothing(trust);
    const all = found.bins.reduce((sum, bin) => sum + bin.count, 0) || 1;
    const mean = (key) => found.bins.reduce((sum, bin) => sum + bin.count * bin[key], 0) / all;
    const [sure, right] = [mean("confidence"), mean("accuracy")];
    const gap = Math.abs(sure - right);
    const verdict = gap < 0.05 ? "it is right about as often as it says" : sure > right ? "it is too sure of itself" : "it is right more often than it says";
    const rough = found.labels < ROUGH ? ` With ${count(found.labels, "label")} this is rough.` : "";
    return keep(trust, [[found, () => el("div", {},
      el("p", {}, `On average ${percent(sure)} sure and ${percent(right)} right: ${verdict}.${rough}`),
      el("figure", { class: "chart-square" }, reliability(found)),
      el("p", { class: "faint small" }, `On the dashed line confidence and accuracy agree; a large dot stands for many labels. Expected calibration error: ${percent(found.ece, 1)}.`))]]);
  }

  async function paint() {
    const model = state.model;
    how.textContent = model?.accuracy
      ? `Measured by cross-validation over ${count(model.labels, "label")}: each labeled image is guessed by a model that learned from the other labels only, so nothing here is learned by heart.`
      : missing();
    const found = await Promise.all(LISTS.map(([view]) => api.get(`/api/ids?view=${view}`).catch(() => ({ ids: [] }))));
    keep(lists, LISTS.map((list, k) => [[list[0], found[k].ids.length, found[k].ids.slice(0, PREVIEW)], () => listEntry(list, found[k].ids)]));
    await Promise.all([paintConfusion(), paintTrust()]);
  }

  // once for a burst of news, and not while nobody looks
  function soon() {
    if (!visible || waiting) return;
    waiting = setTimeout(() => {
      waiting = 0;
      paint().catch((error) => studio.toast(error.message, "warning"));
    }, 400);
  }
  for (const event of ["model", "classes", "labels"]) studio.on(event, soon);

  return {
    show() {
      visible = true;
      map.show();
      paint().catch((error) => studio.toast(error.message, "warning"));
    },
    hide() {
      visible = false;
      map.hide();
    },
  };
}
