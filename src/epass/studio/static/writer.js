// Answers on their way to the disk: one after the other, none dropped, none overtaken.

import { count } from "./dom.js";

const PAUSE = 1000; // ms until an answer that nobody took is sent again

export function makeWriter(studio, rows) {
  let waiting = 0, blocked = false;

  addEventListener("beforeunload", (event) => { if (waiting) event.preventDefault(); });

  async function post(path, body, size) {
    waiting += size;
    studio.saved(waiting);
    try {
      return await studio.api.post(path, { tab: studio.tab, ...body });
    } finally {
      waiting -= size;
      studio.saved(waiting);
    }
  }

  /** Post until there is an answer; while the server is gone, say so and let nobody go on. Saying it twice does no harm. */
  async function insist(changes) {
    const what = count(changes.length, "answer");
    let other = {}; // the start of the server for which the answers are meant, if it is not that of the page
    for (;;) {
      let why = null;
      try {
        const written = await post("/api/answers", { changes, ...other }, changes.length);
        if (other.version) studio.refresh(); // the page loads itself again, now that nothing is waiting
        return written;
      } catch (error) {
        if (!error.passing && !error.startedAgain) throw error;
        why = error;
      } finally {
        if (blocked && !why) studio.bar("");
        blocked = why !== null;
      }
      waiting += changes.length;
      studio.saved(waiting);
      if (why.startedAgain) {
        const version = await nowMeaningTheSame(changes).catch(() => "");
        if (version === null) {
          studio.bar(`Not saved: ${what}. The studio was started again with other photos or classes: reload the page, and answer again.`);
          return new Promise(() => {}); // this stays until somebody has read it
        }
        if (version) other = { version };
      }
      studio.bar(`Not saved yet: ${what}, kept here and sent again every second. ${why.message} Keys do nothing until it is saved.`);
      await new Promise((done) => setTimeout(done, PAUSE));
      waiting -= changes.length;
    }
  }

  /** The start of the server that runs now, if its numbers of images and classes mean what they mean here; else null. */
  async function nowMeaningTheSame(changes) {
    const { project, classes } = await studio.api.get("/api/state");
    const name = (id) => classes.find((each) => each.id === id)?.name;
    const said = changes.flatMap(({ label, seen }) => [label, seen.label]).filter((id) => id !== null);
    const same = project.digest === studio.state.project.digest && said.every((id) => name(id) === studio.className(id));
    return same ? project.version : null;
  }

  /** Write {id, label, mark} for each; false if somebody else was faster (then the page shows what is there now). */
  async function answer(wishes) {
    await rows.need(wishes.map((wish) => wish.id));
    const changes = wishes.map((wish) => ({ ...wish, seen: (({ label, mark }) => ({ label, mark }))(rows.peek(wish.id)) }))
      .filter(({ label, mark, seen }) => label !== seen.label || mark !== seen.mark);
    if (!changes.length) return true;
    try {
      const written = await insist(changes);
      studio.state.n = Math.max(studio.state.n, written.n);
      recount(changes);
      rows.put([...changes.map(({ id, label, mark }) => ({ ...rows.peek(id), label, mark })), ...(written.rows ?? [])]);
      return true;
    } catch (error) {
      if (error.status !== 409) throw error;
      rows.put(error.body.rows);
      studio.toast(error.message, "warning");
      return false;
    }
  }

  /** The numbers beside the classes follow at once; the server's own come a moment later. */
  function recount(changes) {
    const { state } = studio;
    const add = (said, step) => {
      const held = state.classes.find((each) => each.id === said.label);
      if (held) { held.count += step; state.labeled += step; }
      if (said.mark) state.marks[said.mark] = (state.marks[said.mark] ?? 0) + step;
    };
    for (const change of changes) { add(change.seen, -1); add(change, 1); }
    studio.emit("state", state);
  }

  /** Change classes or keys, or take the last thing back. Sent once: said twice, it would be done twice. */
  async function change(path, body = {}) {
    const written = await post(path, body, 1);
    rows.put(written.rows ?? []);
    await studio.refresh(0);
    return written;
  }

  async function undo() {
    const written = await change("/api/undo");
    studio.toast(written.said);
    return written.rows ?? [];
  }

  return { answer, undo, change, get blocked() { return blocked; } };
}
