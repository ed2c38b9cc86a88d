// Many images at once: only the rows in sight are in the page, however long the list is.

import { el, fill, percent } from "./dom.js";

const GAP = 10, CAPTION = 28, MARGIN = 2; // px, px, rows beyond the window
const MARKS = { skip: "skipped", unsure: "unsure", none: "none of these" };

export function makeGrid(studio, rows, { open, changed }) {
  const space = el("div", { class: "grid-space" });
  const band = el("div", { class: "grid-band", hidden: true });
  space.append(band);
  const element = el("div", {
    class: "grid", tabindex: 0, role: "listbox", aria: { label: "Images", multiselectable: "true" },
  }, space);
  const tiles = new Map(); // position -> {tile, image, caption, id}
  let ids = [], size = 160, columns = 1, active = 0, anchor = 0, selected = new Set(), side = 160, drawn = null, farthest = 0;

  const pitch = () => side + CAPTION + GAP;
  const place = (at) => ({ left: (at % columns) * (side + GAP), top: Math.floor(at / columns) * pitch() });

  function measure() {
    const width = element.clientWidth - 2 * GAP;
    if (width <= 0) return;
    columns = Math.max(2, Math.floor((width + GAP) / (size + GAP)));
    side = Math.floor((width - GAP * (columns - 1)) / columns);
    space.style.height = `${Math.ceil(ids.length / columns) * pitch()}px`;
    for (const at of [...tiles.keys()]) drop(at);
    draw();
  }

  function drop(at) {
    const { tile, image } = tiles.get(at);
    image.removeAttribute("src"); // a picture nobody will see is no longer asked for
    tile.remove();
    tiles.delete(at);
  }

  function draw() {
    drawn = null;
    const first = Math.max(0, (Math.floor(element.scrollTop / pitch()) - MARGIN) * columns);
    const bottom = (element.scrollTop + element.clientHeight) / pitch();
    const last = Math.min(ids.length, Math.ceil(bottom + MARGIN) * columns);
    for (const at of [...tiles.keys()]) if (at < first || at >= last || tiles.get(at).id !== ids[at]) drop(at);
    for (let at = first; at < last; at += 1) if (!tiles.has(at)) make(at);
    farthest = Math.max(farthest, Math.min(ids.length, Math.ceil(bottom) * columns));
    fetchPictures();
  }

  function make(at) {
    const image = el("img", { alt: "", draggable: "false", decoding: "async" });
    const caption = el("span", { class: "tile-caption" });
    const tile = el("div", { class: "tile", role: "option", id: `tile-${at}`, data: { at } }, el("span", { class: "tile-picture" }, image), caption);
    const { left, top } = place(at);
    tile.style.transform = `translate(${left}px, ${top}px)`;
    tile.style.width = `${side}px`;
    tile.style.height = `${side + CAPTION}px`;
    image.onload = () => image.classList.add("there");
    image.onerror = () => { if (image.hasAttribute("src")) tile.classList.add("broken"); };
    tiles.set(at, { tile, image, caption, id: ids[at] });
    space.append(tile);
    describe(at);
  }

  function outline(at) {
    const { tile, id } = tiles.get(at), chosen = selected.has(id);
    tile.classList.toggle("selected", chosen);
    tile.classList.toggle("active", at === active);
    tile.setAttribute("aria-selected", String(chosen));
    tile.setAttribute("aria-setsize", ids.length);
    tile.setAttribute("aria-posinset", at + 1);
    if (at === active) element.setAttribute("aria-activedescendant", tile.id);
  }

  /** Label, mark or guess of one tile, in place. */
  function describe(at) {
    const { tile, caption, id } = tiles.get(at), row = rows.get(id);
    outline(at);
    if (!row) return;
    tile.title = row.why ? `${row.name}\n${row.why}` : row.name;
    tile.classList.toggle("labeled", row.label !== null);
    const dot = (id) => el("span", { class: "dot", style: { "--dot": studio.classColor(id) } });
    let words = [];
    if (row.label !== null) words = [dot(row.label), el("b", {}, studio.className(row.label))];
    else if (row.mark) words = [el("span", { class: "mark" }, MARKS[row.mark])];
    else if (row.guess !== null) words = [el("span", { class: "guess" }, `${studio.className(row.guess)}? ${percent(row.confidence)}`)];
    fill(caption, words);
    tile.setAttribute("aria-label", `${row.name}${caption.textContent ? `, ${caption.textContent}` : ""}`);
  }

  let resting = 0;
  /** Thumbnails of what is in sight, once the scrolling is slow enough to look. */
  function fetchPictures() {
    clearTimeout(resting);
    resting = setTimeout(() => {
      const kind = side * devicePixelRatio > 200 ? 320 : 160;
      for (const { image, id } of tiles.values()) if (!image.hasAttribute("src")) image.src = studio.picture(id, kind);
    }, 60);
  }

  const schedule = () => { drawn ??= requestAnimationFrame(draw); };
  const describeAll = () => { for (const at of tiles.keys()) describe(at); };
  const outlineAll = () => { for (const at of tiles.keys()) outline(at); };
  const select = (next) => { selected = next; outlineAll(); changed(); };
  element.addEventListener("scroll", schedule, { passive: true });
  new ResizeObserver(() => { if (element.clientWidth) { const at = active; measure(); reveal(at); } }).observe(element);
  studio.on("theme", describeAll);
  studio.on("state", describeAll);
  rows.onChange((changedIds) => {
    const which = changedIds && new Set(changedIds);
    for (const [at, { id }] of tiles) if (!which || which.has(id)) describe(at);
  });

  function reveal(at) {
    const top = place(at).top, bottom = top + pitch();
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight + GAP;
  }

  function goTo(at, { extend = false } = {}) {
    if (!ids.length) return;
    active = Math.min(ids.length - 1, Math.max(0, at));
    if (extend) select(range(anchor, active));
    else anchor = active;
    reveal(active);
    draw();
    outlineAll();
    changed();
  }

  const range = (from, to) => new Set(ids.slice(Math.min(from, to), Math.max(from, to) + 1));

  function toggle(at) {
    const next = new Set(selected);
    if (!next.delete(ids[at])) next.add(ids[at]);
    anchor = at;
    select(next);
  }

  function click(at, event) {
    active = at;
    if (event.shiftKey) select(range(anchor, at));
    else if (event.ctrlKey || event.metaKey || event.pointerType === "touch") toggle(at);
    else { anchor = at; select(new Set([ids[at]])); }
  }

  // the pointer: a click chooses, a drag draws a band around what it chooses
  let drag = null, banded = false; // banded: the click that ends a band chooses nothing
  const spot = (event) => {
    const box = space.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  element.addEventListener("pointerdown", (event) => {
    banded = false;
    if (event.button !== 0 || event.pointerType === "touch") return;
    element.focus({ preventScroll: true });
    const keep = event.ctrlKey || event.metaKey || event.shiftKey;
    drag = { from: spot(event), base: keep ? new Set(selected) : new Set(), moved: false };
  });
  element.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const to = spot(event), { from } = drag;
    if (!drag.moved && Math.hypot(to.x - from.x, to.y - from.y) < 6) return;
    if (!drag.moved) element.setPointerCapture(event.pointerId);
    drag.moved = true;
    const box = element.getBoundingClientRect();
    if (event.clientY > box.bottom - 30) element.scrollTop += 24;
    if (event.clientY < box.top + 30) element.scrollTop -= 24;
    drawBand(from, to);
    select(new Set([...drag.base, ...inside(from, to)]));
  });
  const release = () => { band.hidden = true; banded = Boolean(drag?.moved); drag = null; };
  element.addEventListener("pointerup", release);
  element.addEventListener("pointercancel", release);
  element.addEventListener("click", (event) => {
    if (banded) return;
    const tile = event.target.closest(".tile");
    if (tile) click(Number(tile.dataset.at), event);
    else if (selected.size) select(new Set());
  });
  element.addEventListener("dblclick", (event) => {
    const tile = event.target.closest(".tile");
    if (tile) open(Number(tile.dataset.at));
  });

  function drawBand(from, to) {
    band.hidden = false;
    band.style.transform = `translate(${Math.min(from.x, to.x)}px, ${Math.min(from.y, to.y)}px)`;
    band.style.width = `${Math.abs(to.x - from.x)}px`;
    band.style.height = `${Math.abs(to.y - from.y)}px`;
  }

  /** The images that a band touches, by arithmetic: most of them may not be in the page. */
  function inside(from, to) {
    const [left, right] = [Math.min(from.x, to.x), Math.max(from.x, to.x)];
    const [top, bottom] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
    const found = [];
    for (let line = Math.max(0, Math.floor(top / pitch())); line * pitch() <= bottom; line += 1) {
      if (line * pitch() + side + CAPTION < top) continue;
      for (let column = 0; column < columns; column += 1) {
        const at = line * columns + column, x = column * (side + GAP);
        if (at >= ids.length) return found;
        if (x <= right && x + side >= left) found.push(ids[at]);
      }
    }
    return found;
  }

  return {
    element,
    /** Show a list; `seen` keeps the place where only the rest of the list is new. */
    setList(next, { same = false } = {}) {
      ids = next;
      if (!same) { active = anchor = farthest = 0; selected = new Set(); element.scrollTop = 0; }
      measure();
    },
    setSize(next) {
      size = next;
      const at = active;
      measure();
      reveal(at);
      draw();
    },
    goTo,
    step(x, y, extend) { goTo(active + x + y * columns, { extend }); },
    toggle: () => toggle(active),
    selectAll: () => select(new Set(ids)),
    clear: () => select(new Set()),
    get active() { return active; },
    get selected() { return [...selected]; },
    get seen() { return farthest; },
  };
}
