// A confusion matrix as a table: rows are the labels, columns the guesses.

import { el } from "./dom.js";

// `open(row, column)` is called for a cell that is pressed; without it, cells are text. With `signed`, cells are
// differences: more right or fewer wrong is good.
export function confusionTable({ names, matrix, caption, open, signed = false }) {
  const most = Math.max(1, ...matrix.flat().map(Math.abs));
  const corner = el("td", { class: "corner" });
  const heads = names.map((name) => el("th", { scope: "col", title: name }, el("span", {}, name)));
  const rows = matrix.map((row, r) => {
    const total = row.reduce((sum, value) => sum + Math.abs(value), 0) || 1;
    const head = el("th", { scope: "row", title: names[r] }, names[r]);
    return el("tr", {}, head, ...row.map((value, c) => {
      const good = (r === c) === value > 0;
      const share = Math.abs(value) / (signed ? most : total);
      const text = signed && value > 0 ? `+${value}` : String(value).replace("-", "−");
      const label = `${value} labeled ${names[r]}, guessed ${names[c]}: show`;
      const inside = value && open ? el("button", { type: "button", aria: { label }, onclick: () => open(r, c) }, text) : text;
      return el("td", { class: value ? (good ? "right" : "wrong") : "zero", style: { "--share": share } }, inside);
    }));
  });
  const table = el("table", { class: names.length > 5 ? "confusion many" : "confusion" },
    el("caption", {}, caption), el("thead", {}, el("tr", {}, corner, ...heads)), el("tbody", {}, ...rows));
  return el("div", { class: "confusion-box", tabindex: 0, role: "region", aria: { label: caption.split(".")[0] } }, table);
}
