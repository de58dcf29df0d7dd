/** The nodes of a cluster, read every few seconds while the page is shown; a single server is asked once. */

import { api, ApiError, isAbort, OfflineError } from "./api.js";
import { session } from "./session.js";

const POLL = 5000;

class Cluster extends EventTarget {
  /** `GET /cluster`; null where there is one server alone. */
  answer = null;
  #told = "";

  /** Whether changes go to another node. */
  get follows() {
    return this.answer?.role === "follower";
  }

  /** Ask again and again, until the page is closed. */
  start() {
    setInterval(() => this.answer && document.visibilityState === "visible" && this.#again(), POLL);
    addEventListener("notleader", () => this.#again()); // a change was refused: the roles may be others now
  }

  /** Ask once. Tells `nodes` when anything is new, and `change` when another node leads. */
  async read(signal) {
    let answer = null;
    try {
      answer = await api.get("/cluster", { signal });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401) throw error;
      if (error.status !== 404) return; // what was told last still holds
    }
    this.answer = answer === null || answer.role === "alone" ? null : answer;
    this.dispatchEvent(new Event("nodes"));
    const told = JSON.stringify([this.answer?.role, this.answer?.leader]);
    if (told === this.#told) return;
    this.#told = told;
    this.dispatchEvent(new Event("change"));
  }

  /** Forget what was told. */
  forget() {
    this.answer = null;
  }

  #again() {
    if (session.scopes.size === 0) return;
    this.read().catch((error) => {
      if (!isAbort(error) && !(error instanceof ApiError) && !(error instanceof OfflineError)) throw error;
    });
  }
}

export const cluster = new Cluster();

/** Whether the key has one of some scopes for changes, and this server takes them. */
export const mayChange = (...scopes) => !cluster.follows && session.can(...scopes);

/** Return an address that a link may lead to; null for what is none. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return /^https?:$/.test(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
