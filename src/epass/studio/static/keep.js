// Lists that news change while somebody points at them: what is still the same stays the same element.

const FOCUSABLE = "a[href], button, input, select, summary";
const held = new WeakMap(); // elements of a parent, by what they show

/** Let a parent show these: pairs of what a child shows (any JSON) and what makes it. Unchanged children are kept. */
export function keep(parent, wanted) {
  const before = held.get(parent) ?? new Map();
  const focused = placeOfFocus(parent);
  const after = new Map();
  wanted.forEach(([shown, make], place) => {
    const key = JSON.stringify([place, shown]);
    after.set(key, before.get(key) ?? make());
  });
  held.set(parent, after);
  const nodes = [...after.values()];
  for (const child of [...parent.children]) if (!nodes.includes(child)) child.remove();
  nodes.forEach((node, place) => {
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  if (focused && !parent.contains(document.activeElement)) focusable(parent.children[focused[0]])[focused[1]]?.focus();
}

const focusable = (node) => (node ? [...(node.matches(FOCUSABLE) ? [node] : []), ...node.querySelectorAll(FOCUSABLE)] : []);

function placeOfFocus(parent) {
  const active = document.activeElement;
  if (!active || active === parent || !parent.contains(active)) return null;
  const place = [...parent.children].findIndex((child) => child.contains(active));
  return [place, focusable(parent.children[place]).indexOf(active)];
}
