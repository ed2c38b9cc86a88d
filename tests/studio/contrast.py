"""Which words of a page are too faint: an expression of JavaScript, empty if all have a contrast of 4.5 or more."""

from __future__ import annotations

# a color may be written in many ways, and several may lie over each other: a canvas knows what is seen in the end
FAINT = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.canvas.width = canvas.canvas.height = 1;
  const over = (...colors) => {
    for (const color of ["#fff", ...colors]) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const grounds = (e) => e ? [...grounds(e.parentElement), getComputedStyle(e).backgroundColor] : [];
  const bad = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.disabled || e.closest("title, script, noscript, option")) continue;
    const style = getComputedStyle(e), below = grounds(e);
    const ink = e.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(over(...below, ink)), light(over(...below))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.getAttribute("class") || e.tagName} ${e.textContent.trim()} ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""
