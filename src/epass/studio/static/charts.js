// Small charts as SVG: lines over steps, and confidence against accuracy. Each says in words what it shows.

import { count, percent, svg } from "./dom.js";

const frame = (width, height, sentence) =>
  svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", aria: { label: sentence } });

// numbers on an axis: at most five that are easy to say
export function ticks(low, high, most = 5) {
  const span = high - low || 1;
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// `lines`: [{name, points: [[x, y], ...]}], at most four; `as(value)` writes a value on the y axis
export function lineChart({ lines, x, y, as = String, height = 230 }) {
  const width = window.innerWidth < 720 ? 350 : 560; // letters keep their size on a phone
  const drawn = lines.filter((line) => line.points.length);
  const all = drawn.flatMap((line) => line.points);
  const box = { left: 52, right: 14, top: drawn.length > 1 ? 28 : 12, bottom: 38 };
  const [xs, ys] = [all.map((point) => point[0]), all.map((point) => point[1])];
  const reach = (values) => [Math.min(...values), Math.max(...values)];
  const [x0, x1] = reach(xs);
  let [y0, y1] = reach(ys);
  const space = (y1 - y0 || Math.abs(y1) || 1) * 0.08;
  y0 = y0 >= 0 ? Math.max(0, y0 - space) : y0 - space;
  y1 += space;
  const px = (value) => box.left + ((value - x0) / (x1 - x0 || 1)) * (width - box.left - box.right);
  const py = (value) => height - box.bottom - ((value - y0) / (y1 - y0 || 1)) * (height - box.top - box.bottom);
  const last = drawn.map((line) => `${line.name} ends at ${as(line.points.at(-1)[1])}`).join(", ");
  const chart = frame(width, height, `${y} over ${x}: ${last}.`);
  for (const value of ticks(y0, y1, 4)) {
    chart.append(
      svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: py(value), y2: py(value) }),
      svg("text", { class: "tick", x: box.left - 6, y: py(value) + 4, "text-anchor": "end" }, as(value)),
    );
  }
  for (const value of x1 > x0 ? ticks(x0, x1) : [x0]) {
    const words = value.toLocaleString("en");
    chart.append(svg("text", { class: "tick", x: px(value), y: height - box.bottom + 16, "text-anchor": "middle" }, words));
  }
  chart.append(
    svg("text", { class: "axis", x: (box.left + width - box.right) / 2, y: height - 5, "text-anchor": "middle" }, x),
  );
  drawn.forEach((line, k) => {
    const path = line.points.map(([a, b], i) => `${i ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join("");
    chart.append(svg("path", { class: `line line-${k % 4}`, d: path }));
    const [a, b] = line.points.at(-1);
    chart.append(svg("circle", { class: `point point-${k % 4}`, cx: px(a), cy: py(b), r: 3.5 }));
    if (drawn.length > 1) {
      const left = box.left + k * ((width - box.left) / drawn.length);
      chart.append(
        svg("path", { class: `line line-${k % 4}`, d: `M${left} 12h20` }),
        svg("text", { class: "tick", x: left + 26, y: 16 }, line.name),
      );
    }
  });
  return chart;
}

// `bins`: as /api/look/calibration has them: on the diagonal confidence and accuracy agree
export function reliability({ bins, ece, labels }, noun = "label", side = 300) {
  const full = bins.filter((bin) => bin.count > 0);
  const box = { left: 46, right: 24, top: 26, bottom: 40 };
  const most = Math.max(1, ...full.map((bin) => bin.count));
  const px = (share) => box.left + share * (side - box.left - box.right);
  const py = (share) => side - box.bottom - share * (side - box.top - box.bottom);
  const sentence = `Accuracy against confidence over ${count(labels, noun)}: ${full
    .map((bin) => `${percent(bin.accuracy)} right where it is ${percent(bin.confidence)} sure`)
    .join(", ")}. Expected calibration error ${percent(ece, 1)}.`;
  const chart = frame(side, side, sentence);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(
      svg("line", { class: "grid", x1: px(0), x2: px(1), y1: py(share), y2: py(share) }),
      svg("text", { class: "tick", x: px(0) - 6, y: py(share) + 4, "text-anchor": "end" }, percent(share)),
      svg("text", { class: "tick", x: px(share), y: py(0) + 16, "text-anchor": "middle" }, percent(share)),
    );
  }
  chart.append(
    svg("text", { class: "axis", x: px(0.5), y: side - 5, "text-anchor": "middle" }, "how sure it is"),
    svg("text", { class: "axis", x: 4, y: 14 }, "how often it is right"),
    svg("line", { class: "even", x1: px(0), x2: px(1), y1: py(0), y2: py(1) }),
  );
  for (const bin of full) {
    const mid = px(bin.confidence);
    const radius = 3 + 6 * Math.sqrt(bin.count / most); // a large dot stands for many images
    const dot = svg("circle", { class: "point point-0", cx: mid, cy: py(bin.accuracy), r: radius.toFixed(1) });
    dot.append(svg("title", {}, `${count(bin.count, "image")}, ${percent(bin.confidence)} sure, ${percent(bin.accuracy)} right`));
    chart.append(svg("line", { class: "gap", x1: mid, x2: mid, y1: py(bin.confidence), y2: py(bin.accuracy) }), dot);
  }
  return chart;
}
