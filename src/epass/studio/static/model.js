// What the model can do by now, and whether more labels would help.

import { count, el, fill, percent, svg } from "./dom.js";

export function makeModel(studio) {
  const element = el("section", { class: "model", aria: { label: "Model" } });

  function draw() {
    const { model, labeled, classes } = studio.state;
    const used = classes.filter((each) => each.count > 0).length;
    if (!model) {
      const missing = used < 2 ? "It learns as soon as there are labels of two classes." : "Learning from your first labels…";
      fill(element, el("h2", {}, "Model"), el("p", { class: "faint" }, missing));
      return;
    }
    const unreadable = model.unreadable ?? 0;
    const behind = Math.max(model.behind ?? 0, labeled - model.labels - unreadable);
    fill(element,
      el("header", {}, el("h2", {}, "Model"), el("span", { class: "small faint" }, behind > 0 ? `${count(behind, "label")} behind` : "up to date")),
      accuracy(model), model.about && el("p", { class: "small faint" }, model.about),
      unreadable > 0 && el("p", { class: "small faint" }, `Without ${count(unreadable, "label")} of images that cannot be read.`), growth(model.history ?? []), enough(model.enough),
      model.helped && el("p", { class: "small faint" }, model.helped));
  }

  function accuracy({ accuracy: score, how, labels }) {
    if (!score) return el("p", {}, `A first model (${how}) guesses already.`);
    const range = `${percent(score.low)} to ${percent(score.high)}`;
    const asked = score.labels < labels ? `${score.labels.toLocaleString("en")} of your ${count(labels, "label")}`
      : score.labels > labels ? `the ${count(score.labels, "label")} of before` : `your ${count(labels, "label")}`;
    return el("p", { class: "score" }, el("b", { class: "number" }, percent(score.value)), el("span", { class: "small" }, "right ",
      el("span", { class: "faint" }, `(${range}), by cross-validation over ${asked}`)));
  }

  function enough(said) {
    return said && el("p", { class: "enough", data: { verdict: said.verdict } },
      el("span", { class: "small faint" }, "Labeled enough?"), el("span", {}, said.sentence));
  }

  /** Accuracy over labels, with its interval. */
  function growth(history) {
    const points = history.filter((row) => row.accuracy !== null && row.accuracy !== undefined).slice(-200);
    if (points.length < 2) return null;
    const width = 280, height = 84, left = 34, bottom = 18, top = 6;
    const most = points.at(-1).labels, least = Math.min(...points.map((row) => row.labels));
    const floor = Math.max(0, Math.floor(10 * Math.min(...points.map((row) => row.low ?? row.accuracy))) / 10);
    const x = (labels) => left + ((width - left - 6) * (labels - least)) / Math.max(1, most - least);
    const y = (value) => top + ((height - top - bottom) * (1 - value)) / Math.max(0.1, 1 - floor);
    const path = (pairs) => pairs.map(([labels, value]) => `${x(labels).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    const ranged = points.filter((row) => row.low !== null && row.low !== undefined);
    const edge = [...ranged.map((row) => [row.labels, row.high]), ...ranged.toReversed().map((row) => [row.labels, row.low])];
    const words = `Accuracy: ${percent(points[0].accuracy)} at ${count(points[0].labels, "label")}, ${percent(points.at(-1).accuracy)} at ${most}.`;
    const line = (value) => [svg("line", { class: "rule", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value))];
    return svg("svg", { class: "growth", viewBox: `0 0 ${width} ${height}`, role: "img", aria: { label: words } },
      line(1), line(floor), svg("polygon", { class: "interval", points: path(edge) }),
      svg("polyline", { class: "line", points: path(points.map((row) => [row.labels, row.accuracy])) }),
      svg("circle", { class: "end", cx: x(most), cy: y(points.at(-1).accuracy), r: 3.5 }),
      svg("text", { x: left, y: height - 4 }, count(least, "label")),
      svg("text", { x: width, y: height - 4, "text-anchor": "end" }, most.toLocaleString("en")));
  }

  studio.on("model", draw);
  studio.on("state", draw);
  draw();
  return element;
}
