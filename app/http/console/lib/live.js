/** Live updates from the server: the model and its surroundings, by streams or by polling. */

import { api, ApiError, isAbort, OfflineError } from "./api.js";
import { cluster } from "./cluster.js";
import { session } from "./session.js";
import { pause, readEvents, withSlot } from "./stream.js";

const POLL = 5000;
const POLLS = 6; // then a tab tries again to hold a stream
const REREAD = 3000; // between two readings of the whole model
const RETRY = 1000; // until a request is sent again that was lost while the server answers others

class Live extends EventTarget {
  /** `connecting`, `live`, `polling`, `starting`, `reconnecting`, `offline` or `locked`. */
  state = "connecting";
  /** `GET /model`, with what events have changed since; null at first. */
  model = null;
  /** The sections of `GET /events`; without the scope `read` those that `GET /model` tells. */
  sections = {};
  #run = new AbortController();
  #eventId = null;
  #readAt = 0;
  #isRereading = false;

  /** Start, and continue until the page is closed; a hidden page asks nothing. */
  start() {
    document.addEventListener("visibilitychange", () => this.restart());
    addEventListener("online", () => this.restart());
    session.addEventListener("change", () => session.scopes.size || this.#lock());
    this.restart();
  }

  /** Drop all updates, and start again with another key. */
  forget() {
    Object.assign(this, { model: null, sections: {} });
    cluster.forget();
    this.#eventId = null;
    this.#become("connecting");
    this.restart();
  }

  /** Start again at once, unless another key is needed first. */
  restart() {
    if (this.state === "locked") return;
    this.#run.abort(new DOMException("again", "AbortError"));
    this.#run = new AbortController();
    if (document.visibilityState === "visible") this.#follow(this.#run.signal).catch(ignore);
  }

  /** End all streams: they were opened with a key that the server does not take any more. */
  #lock() {
    this.#run.abort(new DOMException("locked", "AbortError"));
    this.#become("locked");
  }

  /** Call a handler with the data of a section, of `model` or `state`, until a signal is aborted. */
  on(type, handler, signal) {
    this.addEventListener(type, (event) => handler(event.detail), { signal });
  }

  /** Call something once, as soon as the server answers again; if it answers others already, in a moment. */
  onUp(handler) {
    const end = new AbortController();
    const hear = () => {
      if (!this.isUp || end.signal.aborted) return;
      end.abort();
      handler();
    };
    this.on("state", hear, end.signal);
    if (this.isUp) setTimeout(hear, RETRY);
  }

  get isUp() {
    return this.state === "live" || this.state === "polling";
  }

  /** Read the whole model. */
  async refresh() {
    this.#readAt = Date.now();
    this.#takeModel(await api.get("/model", { signal: this.#run.signal }));
  }

  #takeModel(model) {
    this.model = model;
    this.#tell("model", model);
    if (session.can("read")) return;
    this.#note("changes", { state: model.changes, reason: model.changes_stopped });
    this.#note("expiry", { paused: model.expiry_paused });
    this.#note("erasures", { pending: model.pending_erasures, overdue: model.overdue_erasures });
  }

  /** Call a handler with the metrics of each second, or of some, until a signal is aborted. */
  async metrics(handler, signal) {
    for (;;) {
      const [run, holds] = [AbortSignal.any([signal, this.#run.signal]), this.state === "live"];
      const take = (event) => {
        if (event.type === "metrics") handler(event.data);
        return !holds;
      };
      try {
        if (holds || this.state === "polling") await readEvents("/events?topic=metrics", take, { signal: run });
      } catch (error) {
        if (signal.aborted) return;
        ignore(error);
      }
      try {
        await pause(holds || this.state !== "polling" ? 500 : POLL, signal);
      } catch {
        return;
      }
    }
  }

  async #follow(signal) {
    for (let failures = 0; ; ) {
      try {
        await this.#enter(signal);
        failures = 0;
        if (session.can("read")) await withSlot((hasSlot) => this.#listen(hasSlot, signal));
        else await this.#poll(() => this.refresh(), signal);
      } catch (error) {
        if (isAbort(error) || signal.aborted) throw error;
        failures += 1;
        const isUp = error instanceof ApiError;
        this.#become(isUp && error.status === 503 ? "starting" : failures > 3 ? "offline" : "reconnecting");
      }
      await pause(Math.min(4000, 250 * 2 ** failures) * (0.8 + 0.4 * Math.random()), signal);
    }
  }

  /** Ask what may be done here. */
  async #enter(signal) {
    await api.get("/readyz", { signal });
    const [access, model] = await Promise.all([api.get("/access", { signal }), api.get("/model", { signal }), cluster.read(signal)]);
    this.model = model; // views begin when access is known, and read it
    session.allow(access);
    this.#takeModel(model);
  }

  /** Hear of changes until the server stops, or ask for them for a while. */
  async #listen(hasSlot, signal) {
    if (!hasSlot) return this.#poll(() => readEvents("/events", (event) => this.#take(event) ?? true, { signal }), signal);
    this.#become("live");
    const headers = this.#eventId ? { "Last-Event-ID": this.#eventId } : {};
    await readEvents("/events", (event) => this.#take(event), { signal, headers });
    return this.#become("reconnecting");
  }

  async #poll(ask, signal) {
    this.#become("polling");
    for (let n = 0; n < POLLS; n += 1) {
      await ask();
      await pause(POLL, signal);
    }
  }

  #take({ type, id, data }) {
    if (type === "bye") return;
    this.#eventId = id ?? this.#eventId;
    for (const [name, value] of Object.entries(type === "hello" ? data : { [type]: data })) this.#note(name, value);
  }

  #note(name, value) {
    if (JSON.stringify(this.sections[name]) === JSON.stringify(value)) return;
    this.sections[name] = value;
    if (name !== "model") return this.#tell(name, value);
    const isNew = value.model_version !== this.model.model_version;
    this.model = { ...this.model, ...value };
    this.#tell("model", this.model);
    if (isNew) this.#reread().catch(ignore);
  }

  /** Read classes and columns again, some time after they may have changed. */
  async #reread() {
    if (this.#isRereading) return;
    this.#isRereading = true;
    try {
      await pause(Math.max(0, this.#readAt + REREAD - Date.now()), this.#run.signal);
      await this.refresh();
    } finally {
      this.#isRereading = false;
    }
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.#tell("state", state);
  }
}

/** An aborted request is no fault, and the state already shows that a server does not answer. */
function ignore(error) {
  if (!isAbort(error) && !(error instanceof OfflineError) && !(error instanceof ApiError)) throw error;
}

export const live = new Live();
