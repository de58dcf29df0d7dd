/** Server-sent events read with `fetch`: `EventSource` cannot send a key. */

import { api, isAbort, OfflineError } from "./api.js";

const SILENCE = 40_000; // the server says something at least every 15 s
// A browser has six connections to a host. Two tabs hold streams, and the others ask now and then.
const SLOTS = ["oubli-streams-1", "oubli-streams-2"];

/** Give each event of a stream to `onEvent`, until the stream ends or the server is silent; stop early if it says `true`. */
export async function readEvents(path, onEvent, { signal, headers = {} } = {}) {
  const silence = new AbortController();
  const end = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(new OfflineError()), SILENCE);
  try {
    const answer = await api.raw("GET", path, { signal: end, headers: { Accept: "text/event-stream", ...headers } });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let unread = ""; ; ) {
      const { done, value } = await reader.read().catch((error) => {
        throw isAbort(error) ? error : new OfflineError();
      });
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(new OfflineError()), SILENCE);
      const blocks = (unread + value).replaceAll("\r", "").split("\n\n");
      unread = blocks.pop();
      for (const event of blocks.map(parse)) {
        if (event && onEvent(event) === true) return await reader.cancel();
      }
    }
  } finally {
    clearTimeout(timer);
    silence.abort(new DOMException("over", "AbortError")); // closes the connection
  }
}

function parse(block) {
  const event = { type: "message", id: null };
  const data = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const [name, value] = [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    if (name === "data") data.push(value);
    else if (name === "event") event.type = value;
    else if (name === "id") event.id = value;
  }
  return data.length ? { ...event, data: JSON.parse(data.join("\n")) } : null;
}

/** Call `work` with whether this tab may hold streams; a tab without a slot returns after a while and tries again. */
export async function withSlot(work) {
  for (const name of navigator.locks ? SLOTS : []) {
    const had = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => {
      if (lock) await work(true);
      return lock !== null;
    });
    if (had) return;
  }
  await work(!navigator.locks); // plain HTTP beyond loopback: tabs do not know of each other
}

/** Wait some time, or until a signal is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const timer = setTimeout(over, milliseconds);
    signal.addEventListener("abort", over);
    function over() {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    }
  });
}
