// Calls to the console. The token is kept here, in memory, and goes out in one header; no cookie is ever sent or set.

const SLOWEST_MS = 15_000;
const ASK_SLOWEST_MS = 30_000;
let token = "";
let heardAt = moment();

/** What the console has answered when it would not: `status` 0 is no answer at all. */
export class Trouble extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function setToken(given) {
  token = given;
}

/** Now, by both clocks of the device: the one jumps when somebody sets it, the other may stand while the device sleeps. */
export function moment() {
  return [Date.now(), performance.now()];
}

/** Milliseconds since a moment, by the clock that has seen more of them. */
export function since([wall, ticks]) {
  return Math.max(Date.now() - wall, performance.now() - ticks);
}

/** How old the newest answer is, in milliseconds. The stream is no answer: it may flow while no question gets through. */
export function silentMs() {
  return since(heardAt);
}

function options(method, body, signal) {
  const headers = { authorization: `Bearer ${token}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  return {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  };
}

async function call(method, path, body, ms) {
  const asked = moment();
  let came;
  try {
    came = await fetch(path, options(method, body, AbortSignal.timeout(ms)));
    const told = await came.json();
    if (since(asked) < silentMs()) heardAt = asked; // an answer is as old as its question: the device may have slept between
    return { status: came.status, told };
  } catch {
    throw new Trouble(0, "the console does not answer");
  }
}

/** A document. Throws Trouble. */
export async function get(path) {
  const { status, told } = await call("GET", path, undefined, SLOWEST_MS);
  if (status !== 200) throw new Trouble(status, String(told.detail ?? `answer ${status}`));
  return told;
}

/** A file, to be kept by the person. Throws Trouble. */
export async function file(path) {
  const came = await fetch(path, options("GET", undefined, AbortSignal.timeout(SLOWEST_MS))).catch(() => null);
  if (!came?.ok) throw new Trouble(came?.status ?? 0, came ? `answer ${came.status}` : "the console does not answer");
  return came.blob();
}

/** What came of a request: an AnswerDocument, refused ones too. Throws Trouble where nobody judged it. */
export async function ask(path, body) {
  const { status, told } = await call("POST", path, body, ASK_SLOWEST_MS);
  if (told.state === undefined) {
    const detail = status === 403 ? "This token may only look." : String(told.detail ?? `answer ${status}`);
    throw new Trouble(status, detail);
  }
  return told;
}

/** Follow a run: `told` gets a row whenever something has changed. Comes again by itself; the answer ends it. */
export function follow(run, told) {
  const over = new AbortController();
  listen(run, told, over.signal);
  return () => over.abort();
}

async function listen(run, told, signal) {
  while (!signal.aborted) {
    let wait = 2_000;
    try {
      const came = await fetch(`/api/runs/${encodeURIComponent(run)}/events`, options("GET", undefined, signal));
      if (came.ok) await read(came.body.pipeThrough(new TextDecoderStream()).getReader(), told);
      else wait = 10_000;
    } catch {
      // The line is cut, or was closed by us; the page says how old it is.
    }
    if (!signal.aborted) await new Promise((done) => setTimeout(done, wait));
  }
}

async function read(reader, told) {
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    kept += value;
    const blocks = kept.split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").find((line) => line.startsWith("data: "));
      if (data) told(JSON.parse(data.slice(6)));
    }
  }
}
