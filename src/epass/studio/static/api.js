// Requests to the studio's server, on the machine where it was started.

/** An answer that is no: status 0 if the server is gone. `body` holds what came with it, e.g. the rows of a conflict. */
export class ApiError extends Error {
  constructor(status, sentence, body = null) {
    super(sentence);
    this.status = status;
    this.body = body;
  }

  /** Whether the same request may succeed later: the server is back then, or its new address was opened. */
  get passing() {
    return this.status === 0 || this.status === 401 || this.status >= 500;
  }

  /** Whether the server is another one by now than the page was loaded from. */
  get startedAgain() {
    return this.status === 412;
  }
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new ApiError(0, "The studio does not answer: is it still running in its terminal?");
  }
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const plain = response.status === 401 ? "This page is not signed in: open the address that the terminal shows." : "The studio could not do that.";
  throw new ApiError(response.status, body?.error ?? plain, body);
}

export const api = {
  version: undefined, // of the server's start: numbers of images may mean others after the next one
  get: (path) => ask(path),
  post: (path, body = {}) =>
    ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ version: api.version, ...body }) }),
  upload: (path, blob) =>
    ask(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: blob }),
};

/** An address with what is asked for; empty values are left out. */
export function address(path, asked = {}) {
  const said = Object.entries(asked).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return said.length ? `${path}?${new URLSearchParams(said)}` : path;
}
