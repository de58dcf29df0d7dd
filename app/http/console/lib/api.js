/** Requests to the server that this page comes from. */

import { session } from "./session.js";

const ELSEWHERE = { type: "not-leader", detail: "Nothing was changed: another node leads. Send changes to that node; the page names it above." };
const ROOT = new URL("../../", import.meta.url); // the page may be served below a path

/** The server has refused a request. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The server answered with status ${status}.`);
    this.status = status;
    this.slug = (problem.type ?? "").split(":").pop();
    this.title = problem.title ?? "";
    this.detail = problem.detail ?? "";
    this.errors = problem.errors ?? [];
  }
}

/** The server cannot be reached. */
export class OfflineError extends Error {
  constructor() {
    super("The server does not answer. The page may show old values.");
  }
}

/** Say in one text what went wrong. */
export function explain(error) {
  if (!(error instanceof ApiError)) return error instanceof OfflineError ? error.message : "The page has a fault: reload it.";
  return [error.detail || error.title || error.message, ...error.errors.map((one) => `${one.pointer || "The body"}: ${one.detail}.`)].join(" ");
}

export const isAbort = (error) => error?.name === "AbortError";

async function raw(method, path, { query, body, headers = {}, signal, once = false } = {}) {
  const url = new URL(path.slice(1), ROOT);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined) url.searchParams.append(name, value);
  }
  const sent = new Headers(headers);
  const { key } = session;
  if (key) sent.set("Authorization", `Bearer ${key}`);
  if (once) sent.set("Idempotency-Key", unique());
  let answer;
  try {
    answer = await fetch(url, {
      method, body, headers: sent, signal,
      cache: "no-store", credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new OfflineError();
  }
  if (answer.ok) return answer;
  const isElsewhere = answer.type === "opaqueredirect"; // never followed: the key is for this server
  const error = isElsewhere ? new ApiError(307, ELSEWHERE) : new ApiError(answer.status, await answer.json().catch(() => ({})));
  if (error.slug === "not-leader") dispatchEvent(new Event("notleader"));
  if (error.status === 401) session.lock(key);
  throw error;
}

async function send(method, path, content, options = {}) {
  const body = content === undefined ? undefined : JSON.stringify(content);
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await raw(method, path, { ...options, body, headers: { ...headers, ...options.headers } });
  try {
    return await answer.json();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new OfflineError();
  }
}

/** Return a text that no other request has. */
function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const api = {
  raw,
  get: (path, options) => send("GET", path, undefined, options),
  post: (path, body = {}, options = {}) => send("POST", path, body, options),
  put: (path, body, options) => send("PUT", path, body, options),
  delete: (path, options) => send("DELETE", path, undefined, options),
};
