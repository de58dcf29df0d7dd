/** Text of the model's users, digests and times. */

import { h } from "../lib/dom.js";
import { duration, short } from "../lib/format.js";
import { toast } from "./toast.js";

const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Text from a caller: shown unchanged, and its direction does not affect the text beside it. */
export const quoted = (text) => h("bdi", {}, text === "" ? "(empty)" : visible(String(text)));

/** Show what cannot be seen: signs that control or turn the text are replaced by their pictures or numbers. */
const visible = (text) =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (sign) => `⟨${sign.codePointAt(0).toString(16).padStart(4, "0")}⟩`);

/** A digest, a hash or a long id: shortened, whole when one points at it, and copied by a button. */
export function digest(text, { label = "digest", length = 12 } = {}) {
  const copy = async () => {
    if (!navigator.clipboard) throw new Error("the browser keeps the clipboard to itself");
    await navigator.clipboard.writeText(text);
    toast(`The ${label} is in the clipboard.`);
  };
  const onclick = () => copy().catch(() => toast("The browser does not allow the page to copy.", { kind: "failed" }));
  return h("span", { class: "digest" }, h("code", { title: text }, text.length > length ? `${short(text, length)}…` : text),
    h("button", { class: "button button-plain small", type: "button", onclick, "aria-label": `Copy the ${label}` }, "Copy"));
}

/** A moment. Modes: `moment` (date and time), `ago` and `left` (which count live). */
export function time(iso, { mode = "moment" } = {}) {
  if (!iso) return h("span", { class: "muted" }, "never");
  const node = document.createElement("time-text");
  node.set(iso, mode);
  return node;
}

/** Seconds from now until a moment; negative when it is over. */
export const secondsUntil = (iso) => (Date.parse(iso) - Date.now()) / 1000;

class TimeText extends HTMLElement {
  #timer = 0;

  set(iso, mode) {
    this.iso = iso;
    this.mode = mode;
    const utc = `${new Date(iso).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "")} UTC`;
    this.time = h("time", { datetime: iso, title: mode === "moment" ? utc : `${DAY.format(new Date(iso))} (${utc})` });
    this.replaceChildren(this.time);
    this.#write();
  }

  connectedCallback() {
    if (this.mode !== "moment") this.#timer = setInterval(() => this.#write(), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  #write() {
    const left = secondsUntil(this.iso);
    const text = { moment: () => DAY.format(new Date(this.iso)), ago: () => ago(-left), left: () => remaining(left) }[this.mode]();
    if (this.time.textContent !== text) this.time.textContent = text;
  }
}

const whole = (seconds) => duration(Math.max(1, Math.round(seconds)));
const ago = (seconds) => (seconds < 5 ? "just now" : `${whole(seconds)} ago`);
const remaining = (seconds) => (seconds >= 0 ? `${whole(seconds)} left` : `${whole(-seconds)} overdue`);

customElements.define("time-text", TimeText);
