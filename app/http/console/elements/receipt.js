/** A receipt in a few lines, with a ring that runs out until the deadline. */

import { api } from "../lib/api.js";
import { h, replace, svg } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { go } from "../lib/view.js";
import { secondsUntil, time } from "./text.js";

const RADIUS = 19;
const AROUND = 2 * Math.PI * RADIUS;

/** When a receipt's samples have to be erased from all files; null if the deadline is unknown. */
export function deadlineOf(receipt) {
  if (receipt.deadline) return receipt.deadline; // of earlier versions it does not say
  const seconds = live.sections.erasures?.deadline_s;
  return seconds === undefined ? null : new Date(Date.parse(receipt.unlearned_at) + 1000 * seconds).toISOString();
}

/** The status of an erasure in a word, and whether it is late: finished after its deadline, or past it and not finished. */
export function standing(receipt) {
  const isErased = receipt.status === "erased";
  const deadline = deadlineOf(receipt);
  const isLate = receipt.overdue || (!isErased && receipt.durable && deadline !== null && secondsUntil(deadline) <= 0);
  const words = isErased ? ["Erased", "Erased late"] : ["Unlearned", "Overdue"];
  return { isErased, isLate, words: words[Number(isLate)] };
}

/** A ring that runs out until the deadline. */
export function ring(receipt) {
  const node = document.createElement("erasure-ring");
  node.receipt = receipt;
  return node;
}

class ErasureRing extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    this.left = svg("circle", { class: "ring-left", cx: 22, cy: 22, r: RADIUS });
    this.replaceChildren(svg("svg", { viewBox: "0 0 44 44", "aria-hidden": "true" }, svg("circle", { cx: 22, cy: 22, r: RADIUS }), this.left));
    this.#draw();
    if (this.receipt.status !== "erased") this.#timer = setInterval(() => this.#draw(), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  #draw() {
    const { unlearned_at: since } = this.receipt;
    const { isErased, isLate } = standing(this.receipt);
    const deadline = deadlineOf(this.receipt);
    const share = deadline ? secondsUntil(deadline) / ((Date.parse(deadline) - Date.parse(since)) / 1000) : 1;
    this.className = isLate ? "overdue" : isErased ? "erased" : "";
    const drawn = isErased || isLate ? 1 : Math.max(0, Math.min(1, share));
    this.left.setAttribute("stroke-dasharray", `${drawn * AROUND} ${AROUND}`);
  }
}

customElements.define("erasure-ring", ErasureRing);

/** Show the status of a deletion, and update it until everything is erased. */
export function receipt(made) {
  if (made.id === null) return h("p", {}, "Nothing was held: nothing was erased, and there is no receipt.");
  const node = document.createElement("receipt-card");
  node.receipt = made;
  return node;
}

class ReceiptCard extends HTMLElement {
  connectedCallback() {
    this.end = new AbortController();
    this.setAttribute("role", "status");
    this.#show();
    if (this.receipt.status === "unlearned" && this.receipt.durable && session.can("read", "erase")) live.on("erasures", () => this.#read(), this.end.signal);
  }

  disconnectedCallback() {
    this.end.abort(new DOMException("left", "AbortError"));
  }

  async #read() {
    try {
      const now = await api.get(`/erasures/${this.receipt.id}`, { signal: this.end.signal });
      const isNew = now.status !== this.receipt.status || now.overdue !== this.receipt.overdue;
      this.receipt = now;
      if (now.status === "erased") this.end.abort(new DOMException("over", "AbortError"));
      if (isNew) this.#show();
    } catch {
      // The next event asks again.
    }
  }

  #show() {
    const { id, unlearned, absent, guarantee, durable, erased_at: erasedAt } = this.receipt;
    const { isErased, isLate, words } = standing(this.receipt);
    const samples = unlearned === 1 ? "1 sample" : `${number(unlearned)} samples`;
    const deadline = deadlineOf(this.receipt);
    const next = isErased ? ["Erased from all files ", time(erasedAt, { mode: "ago" }), isLate ? ", after its deadline." : "."]
      : !durable ? ["This server keeps no files, so nothing has to be erased from them."]
        : ["Files that hold it are rewritten: ", deadline ? time(deadline, { mode: "left" }) : "soon", "."];
    replace(this, ring(this.receipt), h("div", { class: "stack" },
      h("div", {}, h("strong", { class: isLate ? "bad" : null }, words), `: ${samples} (${guarantee}). `, absent ? `${number(absent)} of the names were not held. ` : null, next),
      h("div", {}, h("button", { class: "button button-plain", type: "button", onclick: () => go("erasures", { receipt: id }) }, "Show the receipt"))));
  }
}

customElements.define("receipt-card", ReceiptCard);
