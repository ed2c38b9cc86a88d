"use strict";
const save = document.querySelector(".save");
const fields = [...document.querySelectorAll("input[data-name]")];
const filled = () => fields.filter((field) => field.value.trim());
const cell = (text) => `"${text.replaceAll('"', '""')}"`;
document.addEventListener("input", () => {
  save.querySelector("output").textContent = `${filled().length} of ${fields.length}`;
});
save.querySelector("button").addEventListener("click", () => {
  const rows = filled().map((field) => [field.dataset.name, field.dataset.known, field.value.trim()]);
  const text = [[save.dataset.column, "known", "label"], ...rows].map((row) => row.map(cell).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "text/csv" }));
  link.download = "labeled.csv";
  link.click();
});
