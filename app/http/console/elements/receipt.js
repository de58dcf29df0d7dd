/** A receipt in a few lines, with a ring that runs out until the deadline. */

import { h, svg } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { go } from "../lib/view.js";
import { secondsUntil, time } from "./text.js";

const RADIUS = 19;
const AROUND = 2 * Math.PI * RADIUS;

/** When a receipt's samples have to be erased from all files; null where nobody has said how long it may take. */
export function deadlineOf(receipt) {
  const seconds = live.sections.erasures?.deadline_s;
  return seconds === undefined ? null : new Date(Date.parse(receipt.unlearned_at) + 1000 * seconds).toISOString();
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
    const { status, overdue, unlearned_at: since } = this.receipt;
    const deadline = deadlineOf(this.receipt);
    const share = deadline ? secondsUntil(deadline) / ((Date.parse(deadline) - Date.parse(since)) / 1000) : 1;
    const isLate = status !== "erased" && (overdue || share <= 0);
    this.className = status === "erased" ? "erased" : isLate ? "overdue" : "";
    const drawn = status === "erased" || isLate ? 1 : Math.min(1, share);
    this.left.setAttribute("stroke-dasharray", `${drawn * AROUND} ${AROUND}`);
  }
}

customElements.define("erasure-ring", ErasureRing);

/** Say what became of a deletion. */
export function receipt(made) {
  const samples = made.unlearned === 1 ? "1 sample" : `${number(made.unlearned)} samples`;
  const deadline = deadlineOf(made);
  const next = made.status === "erased"
    ? ["Erased from all files ", time(made.erased_at, { mode: "ago" }), "."]
    : !made.durable ? ["Nothing is written to disk here, so that nothing is erased from files."]
      : ["In files until they are written anew: ", deadline ? time(deadline, { mode: "left" }) : "soon", "."];
  return h("div", { class: "receipt" }, ring(made), h("div", { class: "stack" },
    h("div", {}, h("strong", {}, made.status === "erased" ? "Erased" : made.overdue ? "Overdue" : "Unlearned"),
      ` ${samples} (${made.guarantee}).`, made.absent ? ` ${number(made.absent)} named and not held.` : "", " ", next),
    h("div", {}, h("button", { class: "button button-plain", type: "button", onclick: () => go("erasures", { receipt: made.id }) }, "Show the receipt"))));
}
