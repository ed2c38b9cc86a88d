// Elements without HTML text: whatever a user named shows as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "rect", "text", "polyline", "polygon", "title"]);

/** An element. Properties: `class`, `data` and `aria` (objects), `style` (an object), `on…` (listeners), the rest as attributes. */
export function el(tag, props = {}, ...children) {
  const made = build(document.createElement(tag), props);
  made.append(...children.flat(Infinity).filter(isChild));
  return made;
}

/** The same for drawings. */
export function svg(tag, props = {}, ...children) {
  if (!SVG_TAGS.has(tag)) throw new Error(`no drawing has a <${tag}>`);
  const made = build(document.createElementNS(SVG, tag), props);
  made.append(...children.flat(Infinity).filter(isChild));
  return made;
}

function isChild(child) {
  return child !== null && child !== undefined && child !== false;
}

function build(made, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.setAttribute("class", value);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "style") for (const [key, said] of Object.entries(value)) made.style.setProperty(key, said);
    else if (name === "aria") for (const [key, said] of Object.entries(value)) made.setAttribute(`aria-${key}`, said);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  return made;
}

/** Put these in the place of all that an element holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(isChild));
  return parent;
}

export function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)} %`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** How a key looks on a key cap. */
export function keyName(key) {
  const names = { " ": "Space", ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", Backspace: "⌫", Escape: "Esc" };
  return names[key] ?? key;
}

/** A small window over the page that Escape closes; resolves when it is closed. */
export function dialog(title, ...children) {
  const close = el("button", { type: "button", class: "quiet square", aria: { label: "Close" }, onclick: () => made.close() }, "×");
  const made = el("dialog", { aria: { label: title } }, el("header", {}, el("h2", {}, title), close), ...children);
  document.body.append(made);
  const closed = new Promise((done) => made.addEventListener("close", () => { made.remove(); done(made.returnValue); }));
  made.addEventListener("click", (event) => { if (event.target === made) made.close(); });
  made.showModal();
  return { element: made, closed, close: (value = "") => made.close(value) };
}
