// The embedding map: every image is a dot on one canvas, and a thumbnail where there is room for it.

const WORLD = 10000; // the server's coordinates go from 0 to this
const PADDING = 28;
const CELLS = 100; // of the index, along each side
const THUMB = 52;
const MOST_ZOOM = 400;
const THUMBS_FROM = 3.5; // zoom
const FEW = 60; // so many in view are shown as thumbnails at any zoom
const KEPT_THUMBS = 800;

export class EmbeddingMap {
  // `told` = {thumb(id) -> address, select(ids, add), hover(id or null, x, y)}
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told;
    this.pen = canvas.getContext("2d");
    this.ids = [];
    this.selected = new Set();
    this.hidden = new Set();
    this.groups = new Int32Array(0);
    this.look = { palette: [], none: "#888", ink: "#000", accent: "#06c", panel: "#fff" };
    this.moving = false; // one pointer moves the map instead of drawing a lasso
    this.pointers = new Map();
    this.images = new Map();
    this.fit();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  setPoints(ids, xy) {
    this.ids = ids;
    this.x = Float64Array.from(ids, (_, i) => xy[2 * i]);
    this.y = Float64Array.from(ids, (_, i) => xy[2 * i + 1]);
    this.groups = new Int32Array(ids.length).fill(-1);
    this.spread = new Map();
    this.index();
    this.fit();
    this.draw();
  }

  // `groups`: per point the place of its color in the palette, or -1; `hidden`: groups that are not shown
  setLook(groups, hidden, look) {
    this.groups = groups;
    this.hidden = hidden;
    this.look = look;
    this.draw();
  }

  setSelection(ids) {
    this.selected = new Set(ids);
    this.draw();
  }

  inView() {
    return this.visible().map((i) => this.ids[i]);
  }

  // where a point of the world is on the canvas, and back
  at(i) {
    return [this.left + this.x[i] * this.scale, this.top + this.y[i] * this.scale];
  }

  world(px, py) {
    return [(px - this.left) / this.scale, (py - this.top) / this.scale];
  }

  get zoom() {
    return this.scale / this.fitted;
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.fitted = Math.max(1e-6, (Math.min(width, height) - 2 * PADDING) / WORLD);
    this.scale = this.fitted;
    this.left = (width - WORLD * this.scale) / 2;
    this.top = (height - WORLD * this.scale) / 2;
    this.draw();
  }

  pan(dx, dy) {
    this.left += dx;
    this.top += dy;
    this.draw();
  }

  zoomBy(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const next = Math.min(MOST_ZOOM, Math.max(0.7, this.zoom * factor)) * this.fitted;
    const change = next / this.scale;
    this.left = px - (px - this.left) * change;
    this.top = py - (py - this.top) * change;
    this.scale = next;
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width === size[0] && this.canvas.height === size[1]) return;
    [this.canvas.width, this.canvas.height] = size;
    this.fit();
  }

  // points by cell, one after the other: a look-up touches a few cells, never all points
  index() {
    const cell = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor((value / WORLD) * CELLS)));
    const of = this.ids.map((_, i) => cell(this.y[i]) * CELLS + cell(this.x[i]));
    this.starts = new Uint32Array(CELLS * CELLS + 1);
    for (const c of of) this.starts[c + 1]++;
    for (let c = 0; c < CELLS * CELLS; c++) this.starts[c + 1] += this.starts[c];
    const next = this.starts.slice();
    this.order = new Uint32Array(of.length);
    of.forEach((c, i) => (this.order[next[c]++] = i));
    this.cell = cell;
  }

  // shown points inside of a rectangle of the world
  within(x0, y0, x1, y1) {
    const found = [];
    if (!this.order) return found;
    for (let row = this.cell(y0); row <= this.cell(y1); row++) {
      const first = this.starts[row * CELLS + this.cell(x0)];
      const end = this.starts[row * CELLS + this.cell(x1) + 1];
      for (let k = first; k < end; k++) {
        const i = this.order[k];
        const [x, y] = [this.x[i], this.y[i]];
        if (x >= x0 && x <= x1 && y >= y0 && y <= y1 && !this.hidden.has(this.groups[i])) found.push(i);
      }
    }
    return found;
  }

  visible(margin = 0) {
    const [x0, y0] = this.world(-margin, -margin);
    const [x1, y1] = this.world(this.canvas.clientWidth + margin, this.canvas.clientHeight + margin);
    return this.within(x0, y0, x1, y1);
  }

  nearest(px, py, reach) {
    const [x, y] = this.world(px, py);
    const far = reach / this.scale;
    let best = null;
    let least = far * far;
    for (const i of this.within(x - far, y - far, x + far, y + far)) {
      const distance = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      if (distance <= least) [best, least] = [i, distance];
    }
    return best;
  }

  // Points whose thumbnails do not cover each other. They are chosen over the whole map, once for each half step of
  // zoom, so that none comes or goes while the map is moved.
  roomy() {
    const level = Math.floor(Math.log2(this.scale) * 2);
    if (!this.spread.has(level)) {
      const side = (THUMB * 1.04) / 2 ** (level / 2);
      const taken = new Map();
      const chosen = new Set();
      const key = (a, b) => a * 65537 + b;
      for (let i = 0; i < this.ids.length; i++) {
        const [a, b] = [Math.floor(this.x[i] / side), Math.floor(this.y[i] / side)];
        let free = true;
        for (let da = -1; da <= 1 && free; da++) {
          for (let db = -1; db <= 1 && free; db++) {
            const j = taken.get(key(a + da, b + db));
            free = j === undefined || Math.max(Math.abs(this.x[i] - this.x[j]), Math.abs(this.y[i] - this.y[j])) >= side;
          }
        }
        if (free) {
          taken.set(key(a, b), i);
          chosen.add(i);
        }
      }
      this.spread.set(level, chosen);
    }
    return this.spread.get(level);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  paint() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.clearRect(0, 0, width, height);
    const shown = this.visible(THUMB);
    const withThumbs = shown.length > 0 && (this.zoom >= THUMBS_FROM || shown.length <= FEW);
    const roomy = withThumbs ? this.roomy() : new Set();
    const thumbs = shown.filter((i) => roomy.has(i));
    this.paintDots(shown);
    this.paintThumbs(thumbs);
    this.canvas.dataset.thumbnails = thumbs.length;
    this.canvas.dataset.points = shown.length;
    if (this.lasso) this.paintLasso();
  }

  radius() {
    const room = Math.sqrt((WORLD * this.scale) ** 2 / Math.max(1, this.ids.length));
    return Math.min(6, Math.max(1.4, room * 0.2));
  }

  paintDots(shown) {
    const { pen } = this;
    const r = this.radius();
    const square = shown.length > 8000; // many circles take too long
    const groups = new Map();
    for (const i of shown) {
      const group = this.groups[i];
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(i);
    }
    const dot = (i, size) => {
      const [px, py] = this.at(i);
      if (square) return pen.rect(px - size, py - size, 2 * size, 2 * size);
      pen.moveTo(px + size, py);
      return pen.arc(px, py, size, 0, 2 * Math.PI);
    };
    for (const group of [...groups.keys()].sort((a, b) => a - b)) {
      pen.beginPath();
      pen.fillStyle = this.look.palette[group] ?? this.look.none;
      pen.globalAlpha = group < 0 ? 0.55 : 0.9;
      for (const i of groups.get(group)) dot(i, group < 0 ? r * 0.85 : r);
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (!this.selected.size) return;
    pen.beginPath();
    for (const i of shown) if (this.selected.has(this.ids[i])) dot(i, r + 2);
    pen.lineWidth = 1.5;
    pen.strokeStyle = this.look.ink;
    pen.stroke();
  }

  paintThumbs(chosen) {
    const { pen } = this;
    for (const i of chosen) {
      const image = this.image(this.ids[i]);
      if (!image) continue;
      const [px, py] = this.at(i);
      const share = THUMB / Math.max(image.naturalWidth, image.naturalHeight);
      const [w, h] = [image.naturalWidth * share, image.naturalHeight * share];
      const picked = this.selected.has(this.ids[i]);
      const edge = picked ? 4 : 2.5;
      pen.fillStyle = picked ? this.look.ink : (this.look.palette[this.groups[i]] ?? this.look.none);
      pen.fillRect(px - w / 2 - edge, py - h / 2 - edge, w + 2 * edge, h + 2 * edge);
      pen.drawImage(image, px - w / 2, py - h / 2, w, h);
    }
  }

  paintLasso() {
    const { pen } = this;
    pen.beginPath();
    this.lasso.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.globalAlpha = 0.14;
    pen.fillStyle = this.look.accent;
    pen.fill();
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeStyle = this.look.accent;
    pen.stroke();
  }

  // a loaded thumbnail, or nothing yet: then the map is drawn again when it has come
  image(id) {
    let image = this.images.get(id);
    if (image) {
      this.images.delete(id); // what was used last is at the end
      this.images.set(id, image);
      return image.complete && image.naturalWidth ? image : null;
    }
    image = new Image();
    image.onload = () => this.draw();
    image.src = this.told.thumb(id);
    this.images.set(id, image);
    if (this.images.size > KEPT_THUMBS) {
      const [oldest, old] = this.images.entries().next().value;
      if (!old.complete) old.src = "";
      this.images.delete(oldest);
    }
    return null;
  }

  listen() {
    const { canvas } = this;
    const spot = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0022)), ...spot(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event, spot(event)));
    canvas.addEventListener("pointermove", (event) => this.move(event, spot(event)));
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => this.up(event, spot(event), kind === "pointerup"));
    }
    canvas.addEventListener("pointerleave", () => this.told.hover(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  down(event, point) {
    if (event.button > 1) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, point);
    this.told.hover(null);
    this.start = point;
    const drawing = this.pointers.size === 1 && !this.moving && event.button === 0;
    this.lasso = drawing ? [point] : null; // a second finger turns a lasso into moving and zooming
    this.moved = this.pointers.size > 1;
  }

  move(event, point) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "touch") return;
      const i = this.nearest(...point, Math.max(this.radius() + 5, this.zoom >= THUMBS_FROM ? THUMB / 2 : 0));
      this.told.hover(i === null ? null : this.ids[i], ...point);
      return;
    }
    this.moved ||= Math.hypot(point[0] - this.start[0], point[1] - this.start[1]) > 4;
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const span = (p) => Math.max(10, Math.hypot(p[0] - other[0], p[1] - other[1]));
      const middle = (p) => [(p[0] + other[0]) / 2, (p[1] + other[1]) / 2];
      this.zoomBy(span(point) / span(before), ...middle(point));
      this.pan(middle(point)[0] - middle(before)[0], middle(point)[1] - middle(before)[1]);
    } else if (this.lasso) {
      this.lasso.push(point);
      this.draw();
    } else {
      this.pan(point[0] - before[0], point[1] - before[1]);
    }
    this.pointers.set(event.pointerId, point);
  }

  up(event, point, finished) {
    if (!this.pointers.delete(event.pointerId)) return;
    const lasso = this.lasso;
    this.lasso = null;
    this.draw();
    if (!finished || event.button === 1) return;
    if (!this.moved) {
      const i = this.nearest(...point, Math.max(this.radius() + 6, event.pointerType === "touch" ? 16 : 8));
      this.told.select(i === null ? [] : [this.ids[i]], event.shiftKey);
    } else if (lasso) {
      this.told.select(this.enclosed(lasso), event.shiftKey);
    }
  }

  enclosed(lasso) {
    const outline = lasso.map(([px, py]) => this.world(px, py));
    const [xs, ys] = [outline.map(([x]) => x), outline.map(([, y]) => y)];
    const box = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
    return this.within(...box).filter((i) => inside(this.x[i], this.y[i], outline)).map((i) => this.ids[i]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60;
    const actions = {
      ArrowLeft: () => this.pan(step, 0),
      ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step),
      "+": () => this.zoomBy(1.4),
      "=": () => this.zoomBy(1.4),
      "-": () => this.zoomBy(1 / 1.4),
      0: () => this.fit(),
      Escape: () => this.told.select([], false),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
}

// whether a ray to the right crosses the outline an odd number of times
function inside(x, y, outline) {
  let odd = false;
  for (let k = 0, j = outline.length - 1; k < outline.length; j = k++) {
    const [[x0, y0], [x1, y1]] = [outline[k], outline[j]];
    if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) odd = !odd;
  }
  return odd;
}
