/** What all views share: a heading, sections, states while something is loaded, and an end of all that they began. */

import { state } from "../elements/state.js";
import { ApiError, explain, isAbort, OfflineError } from "./api.js";
import { h, replace, uid } from "./dom.js";
import { live } from "./live.js";

const PATIENCE = 150; // milliseconds until "Loading" is shown
const hints = new Map();

/** Go to another view; the hint stays in memory and is in no address. */
export function go(name, hint = {}) {
  hints.set(name, hint);
  if (location.hash === `#${name}`) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = name;
}

/** Return what `go` was given for a view, once. */
export function takeHint(name) {
  const hint = hints.get(name) ?? {};
  hints.delete(name);
  return hint;
}

export class View extends HTMLElement {
  static heading = "";
  #end = new AbortController();
  #newest = new WeakMap();

  /** Aborted when the view is left. */
  get signal() {
    return this.#end.signal;
  }

  connectedCallback() {
    this.classList.add("view");
    this.append(h("h1", { tabindex: "-1" }, this.constructor.heading));
  }

  disconnectedCallback() {
    this.#end.abort(new DOMException("left", "AbortError"));
    this.leave();
  }

  /** Show the view: called once, after it is in the page. */
  async enter() {}

  /** Called when the view is left. */
  leave() {}

  /** Hear of a section of `live`, of `model` or of `state`. */
  on(type, handler) {
    live.on(type, handler, this.signal);
  }

  /** Add a section with a label at the left; return its body. */
  section(label, { before = null, ...attributes } = {}) {
    const id = uid("section");
    const body = h("div", { class: "section-body" });
    this.insertBefore(h("section", { class: "section", "aria-labelledby": id, ...attributes }, h("h2", { id }, label), body), before);
    return body;
  }

  /** Do not wait any more for what was to be shown in a body. */
  stop(body) {
    this.#newest.get(body)?.abort(new DOMException("stopped", "AbortError"));
    body.removeAttribute("aria-busy");
  }

  /** Load something and show it; a newer call for the body aborts it. Returns what was loaded, undefined when it failed. */
  async show(body, load, render, { empty = () => null } = {}) {
    this.stop(body);
    const end = new AbortController();
    this.#newest.set(body, end);
    const signal = AbortSignal.any([this.signal, end.signal]);
    const isNewest = () => !signal.aborted;
    body.setAttribute("aria-busy", "true");
    const timer = setTimeout(() => isNewest() && !body.childElementCount && replace(body, state("loading", "Loading")), PATIENCE);
    try {
      const answer = await load(signal);
      if (!isNewest()) return undefined;
      const nothing = empty(answer);
      replace(body, nothing ? state("empty", nothing) : render(answer));
      return answer;
    } catch (error) {
      if (!isNewest() || isAbort(error)) return undefined;
      const again = () => this.show(body, load, render, { empty });
      const isOffline = error instanceof OfflineError;
      replace(body, state(isOffline ? "offline" : "error", explain(error), { action: { label: "Try again", onclick: again } }));
      if (isOffline) live.onUp(() => isNewest() && again());
      if (!(error instanceof ApiError || error instanceof OfflineError)) throw error; // a fault of the page
      return undefined;
    } finally {
      clearTimeout(timer);
      if (isNewest()) body.removeAttribute("aria-busy");
    }
  }
}
