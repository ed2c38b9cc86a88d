// A confusion matrix as a table: rows are the labels, columns the guesses.

import { el } from "./dom.js";

/** `open(row, column)` is called for a cell that is pressed, where `can` it be; `signed` cells are differences. */
export function confusionTable({ names, matrix, caption, open = null, can = () => true, signed = false }) {
  const most = Math.max(1, ...matrix.flat().map(Math.abs));
  const heads = names.map((name) => el("th", { scope: "col", title: name }, el("span", {}, name)));
  const rows = matrix.map((row, r) => {
    const total = row.reduce((sum, value) => sum + Math.abs(value), 0) || 1;
    return el("tr", {}, el("th", { scope: "row", title: names[r] }, names[r]), row.map((value, c) => {
      const good = (r === c) === value > 0;
      const share = Math.abs(value) / (signed ? most : total);
      const text = signed && value > 0 ? `+${value}` : String(value).replace("-", "−");
      const label = `${value} labeled ${names[r]}, guessed ${names[c]}: show`;
      const pressed = value && open && can(r, c);
      return el("td", { class: value ? (good ? "right" : "wrong") : "zero", style: { "--share": share } },
        pressed ? el("button", { type: "button", aria: { label }, onclick: () => open(r, c) }, text) : text);
    }));
  });
  const table = el("table", { class: names.length > 5 ? "confusion many" : "confusion" },
    el("caption", {}, caption), el("thead", {}, el("tr", {}, el("td", { class: "corner" }), heads)), el("tbody", {}, rows));
  return el("div", { class: "confusion-box", tabindex: 0, role: "region", aria: { label: caption.split(".")[0] } }, table);
}
