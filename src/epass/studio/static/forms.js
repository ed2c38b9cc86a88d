// A form for something that runs: fields as /api/forms describes them, which are the flags of the command line.

import { el, fill } from "./dom.js";

/** A form and what was said in it. `start(said)` and `plan(said)` answer a promise; `plan` may be left out. */
export function buildForm(form, { start, plan }) {
  const fields = form.fields.map((field) => ({ field, ...makeField(field, form.do) }));
  const said = () => Object.fromEntries(fields.map(({ field, read }) => [field.name, read()]).filter(([, value]) => value !== undefined));
  const panels = new Map();
  for (const each of fields) {
    const panel = each.field.panel || "Settings";
    if (!panels.has(panel)) panels.set(panel, []);
    panels.get(panel).push(each.node);
  }
  const groups = [...panels].map(([title, nodes], k) =>
    el("details", { class: "panel", open: k === 0 }, el("summary", {}, title), el("div", { class: "fields" }, nodes)));
  const planned = el("div", { class: "planned", aria: { live: "polite" } });
  const buttons = el("div", { class: "actions" });
  const node = el("form", { class: "job-form", novalidate: true, aria: { label: form.title } }, el("p", { class: "faint" }, form.help.split("\n\n")[0]), groups, planned, buttons);

  async function attempt(doIt) {
    const wrong = [...node.querySelectorAll("input")].find((input) => !input.checkValidity());
    if (wrong) {
      wrong.closest("details").open = true;
      wrong.reportValidity();
      return;
    }
    for (const button of buttons.children) button.disabled = true;
    try {
      await doIt(said());
    } catch (error) {
      fill(planned, el("p", { class: "bad" }, error.message));
    } finally {
      for (const button of buttons.children) button.disabled = false;
    }
  }
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(start);
  });
  if (plan) {
    const show = async (values) => {
      fill(planned, el("p", { class: "faint" }, "Looking at the data…"));
      fill(planned, await plan(values));
      planned.scrollIntoView({ block: "nearest" });
    };
    buttons.append(el("button", { type: "button", onclick: () => attempt(show) }, "Show the plan"));
  }
  buttons.append(el("button", { type: "submit", class: "primary" }, "Start"));
  return node;
}

/** A field with its label and help; `read()` is undefined where nothing was said. */
function makeField(field, of) {
  const id = `field-${of}-${field.name}`;
  const usual = field.usual || String(field.default ?? "");
  const long = usual.length > 20 ? ` As usual: ${usual}.` : ""; // more than a field can show
  const about = field.help || long ? el("small", { id: `${id}-help`, class: "faint" }, field.help, long) : null;
  const shared = { id, name: field.name, aria: about ? { describedby: `${id}-help` } : {} };
  const name = field.flag ? field.flag.replace(/^-+/, "").replaceAll("-", " ") : field.name.replaceAll("_", " ");
  const title = name[0].toUpperCase() + name.slice(1);
  if (field.kind === "bool") {
    const input = el("input", { ...shared, type: "checkbox", checked: field.default });
    const node = el("div", { class: "field check" }, el("label", { for: id }, input, el("span", {}, title)), about);
    return { node, read: () => (input.checked === field.default ? undefined : input.checked) };
  }
  const [input, read] = {
    choice: () => select(shared, long ? "" : usual, field),
    int: () => number(shared, usual, field.least),
    list: () => (field.choices ? several(shared, field.choices) : lines(shared, usual)),
    text: () => text(shared, long ? "" : usual, field.choices),
  }[field.kind]();
  return { node: el("div", { class: "field" }, el("label", { for: id }, title), input, about), read };
}

function select(shared, usual, { choices, needed, runs }) {
  const none = needed ? null : el("option", { value: "" }, runs ? "none" : usual ? `as usual: ${usual}` : "as usual");
  const input = el("select", shared, none, (choices ?? []).map((value) => el("option", { value }, value)));
  return [input, () => (input.value === "" ? undefined : input.value)];
}

function several(shared, choices) {
  const boxes = choices.map((value) => el("input", { type: "checkbox", value }));
  const input = el("div", { ...shared, class: "several", role: "group", name: null }, boxes.map((box) => el("label", {}, box, box.value)));
  const read = () => boxes.filter((box) => box.checked).map((box) => box.value);
  return [choices.length ? input : el("p", { class: "faint" }, "There is no run yet."), () => (read().length ? read() : undefined)];
}

function number(shared, usual, least) {
  const limits = least === null || least === undefined ? {} : { min: least };
  const input = el("input", { ...shared, ...limits, type: "number", step: 1, inputmode: "numeric", placeholder: usual });
  return [input, () => (input.value === "" ? undefined : Number(input.value))];
}

function lines(shared, usual) {
  const input = el("textarea", { ...shared, rows: 2, placeholder: usual || "one in each line" });
  const read = () => input.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return [input, () => (read().length ? read() : undefined)];
}

function text(shared, usual, choices) {
  const known = choices?.length ? el("datalist", { id: `${shared.id}-known` }, choices.map((value) => el("option", { value }))) : null;
  const input = el("input", { ...shared, type: "text", autocomplete: "off", placeholder: usual, list: known ? known.id : null });
  return [el("span", {}, input, known), () => (input.value.trim() === "" ? undefined : input.value.trim())];
}

/** Events as /api/jobs answers them, in the words of a page: plan, cautions, tables, result. */
export function showEvents(events) {
  return events.map((event) => {
    const facts = event.facts && Object.keys(event.facts).length
      ? el("dl", { class: "facts" }, Object.entries(event.facts).map(([name, words]) => [el("dt", {}, name), el("dd", {}, words)])) : null;
    if (event.sentence) return el("p", { class: event.kind === "caution" ? "caution" : null }, event.sentence);
    if (event.heads) {
      return el("div", { class: "table-box" }, el("table", { class: "plain" }, event.title ? el("caption", {}, event.title) : null,
        el("thead", {}, el("tr", {}, event.heads.map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, event.rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
    }
    if (!event.title && !facts && !event.lines?.length) return null;
    return el("div", { class: "event" }, event.title ? el("h3", {}, event.title) : null, facts, event.lines?.map((line) => el("p", {}, line)));
  });
}
