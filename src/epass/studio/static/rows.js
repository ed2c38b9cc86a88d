// What is known about images, by id: asked for in batches, kept in step with the server.

const BATCH = 200;

export function makeRows(studio) {
  const known = new Map(), stale = new Set(), touched = new Map(), listeners = new Set();
  let wanted = new Set(), waiting = null, clock = 0;

  const tell = (ids) => { for (const listener of listeners) listener(ids); };

  /** Take rows that were just written: they are newer than any answer under way. */
  function put(rows) {
    clock += 1;
    for (const row of rows) { known.set(row.id, row); touched.set(row.id, clock); stale.delete(row.id); }
    tell(rows.map((row) => row.id));
  }

  async function fetchRows(ids) {
    const began = clock;
    const { rows } = await studio.api.post("/api/rows", { ids });
    for (const row of rows) {
      const written = (touched.get(row.id) ?? 0) > began ? known.get(row.id) : row;
      known.set(row.id, { ...row, label: written.label, mark: written.mark });
      stale.delete(row.id);
    }
    tell(ids);
  }

  async function fetchWanted() {
    const ids = [...wanted];
    wanted = new Set();
    for (let from = 0; from < ids.length; from += BATCH) await fetchRows(ids.slice(from, from + BATCH));
  }

  /** Resolves when something is known about each; what the page shows already stays as it is. */
  async function need(ids) {
    const missing = ids.filter((id) => !known.has(id));
    for (let from = 0; from < missing.length; from += BATCH) await fetchRows(missing.slice(from, from + BATCH));
  }

  /** What is known now, or undefined; what is missing or old is asked for, and listeners hear of it. */
  function get(id) {
    if (!known.has(id) || stale.has(id)) {
      wanted.add(id);
      waiting ??= new Promise((done) => setTimeout(done, 15)).then(() => { waiting = null; return fetchWanted(); }).catch(() => {});
    }
    return known.get(id);
  }

  const forget = () => { for (const id of known.keys()) stale.add(id); tell(null); };
  studio.on("labels", (value) => (value.rows ? put(value.rows) : forget()));
  studio.on("model", forget);
  studio.on("reconnect", forget);
  return { get, need, put, peek: (id) => known.get(id), onChange: (listener) => listeners.add(listener) };
}
