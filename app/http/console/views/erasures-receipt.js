/** One receipt: its content, and the check step by step. */

import { button } from "../elements/field.js";
import { deadlineOf, ring, standing } from "../elements/receipt.js";
import { definitions } from "../elements/table.js";
import { digest, time } from "../elements/text.js";
import { api } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { saveJson } from "../lib/files.js";
import { capital, duration, number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { contentOf } from "../lib/receipts.js";
import { checkReceipt } from "../lib/verify.js";
import { printReport, reportOf } from "./erasures-report.js";

const MOST_ENTRIES = 20_000; // of a ledger that is checked without a click
const MARKS = { waiting: "·", running: "…", ok: "✓", failed: "✗", unable: "–" };
const WORDS = { waiting: "waiting", running: "running", ok: "right", failed: "wrong", unable: "not checked" };
const SENTENCES = {
  ok: "The receipt is right: this browser has checked its signature and its place in the ledger.",
  failed: "The receipt is wrong. Keep it and the ledger, and ask the operator of the server.",
  unable: "The receipt could not be checked here.",
};

/** The section with the receipt that is open. */
export class Opened {
  #view;
  #body;
  #source;
  #checks;
  #receipt = null;

  constructor(view, body, source, checks) {
    this.#view = view;
    this.#body = body;
    this.#source = source;
    this.#checks = checks;
  }

  get #section() {
    return this.#body.parentElement;
  }

  /** Read a receipt and show it. */
  async open(id) {
    this.#section.hidden = false;
    this.#section.scrollIntoView({ block: "start" });
    const answer = await this.#view.show(this.#body, (signal) => api.get(`/erasures/${encodeURIComponent(id)}`, { signal }), (receipt) => this.#render(receipt));
    if (!answer) return;
    this.#body.querySelector("h3").focus();
    const entries = live.sections.ledger?.index ?? 0;
    if (entries <= MOST_ENTRIES) await this.#check();
    else this.verdict.textContent = `Choose "Check" to read and check all ${number(entries)} entries of the ledger.`;
  }

  /** Read the open receipt again, and show it if its status has changed. */
  async refresh() {
    if (this.#receipt === null) return;
    const before = this.#receipt;
    const now = await api.get(`/erasures/${before.id}`, { signal: this.#view.signal }).catch(() => before);
    if (contentOf(now) === contentOf(before) || this.#receipt !== before) return;
    replace(this.#body, this.#render(now));
    await this.#check();
  }

  #close() {
    const { id } = this.#receipt;
    this.#receipt = null;
    this.#section.hidden = true;
    this.#view.querySelector(`code[data-receipt="${CSS.escape(id)}"]`)?.closest("button").focus();
  }

  #render(receipt) {
    this.#receipt = receipt;
    this.steps = h("ol", { class: "erasures-steps" });
    this.chain = h("div");
    this.verdict = h("p", { class: "erasures-verdict", role: "status" });
    const known = this.#checks.get(contentOf(receipt));
    if (known) this.#draw(known.steps, known.outcome);
    const report = () => reportOf([receipt], this.#checks, this.#source);
    return [
      h("div", { class: "erasures-head" }, ring(receipt), h("h3", { tabindex: "-1", class: standing(receipt).isLate ? "bad" : null }, titleOf(receipt)),
        button("Close", { kind: "plain", onclick: () => this.#close() })),
      h("div", { class: "erasures-pair" }, definitions(factsOf(receipt)),
        h("div", { class: "stack" }, this.verdict, this.chain, this.steps,
          h("div", { class: "row" },
            button("Check", { onclick: () => this.#check() }),
            button("Report as JSON", { onclick: async () => saveJson(`oubli-erasure-${receipt.id}.json`, await report()) }),
            button("Print", { onclick: async () => printReport(await report()) })))),
    ];
  }

  async #check() {
    const receipt = this.#receipt;
    const isShown = () => this.#receipt === receipt;
    let steps = [];
    const outcome = await checkReceipt(receipt, this.#source, (now) => {
      steps = now;
      if (isShown()) this.#draw(now, null);
    });
    if (this.#view.signal.aborted || !isShown()) return;
    this.#draw(steps, outcome);
    if (steps.find(({ name }) => name === "Chain").state === "ok") replace(this.chain, beadsOf(await this.#source.chain(), receipt));
    this.#view.note(receipt, { outcome, steps, at: new Date().toISOString() });
  }

  #draw(steps, outcome) {
    replace(this.steps, steps.map(({ name, state, reason }) =>
      h("li", { class: `erasures-step erasures-${state}` }, h("span", { "aria-hidden": "true" }, MARKS[state]),
        h("span", {}, h("strong", {}, name), h("span", { class: "sr-only" }, `: ${WORDS[state]}`)), h("span", { class: "erasures-reason" }, reason))));
    this.verdict.className = `erasures-verdict erasures-${outcome ?? "running"}`;
    this.verdict.textContent = outcome === null ? "This browser is checking the receipt." : SENTENCES[outcome];
  }
}

/** The entries of the chain about this receipt, as beads on a string. */
function beadsOf(chain, receipt) {
  const places = chain.placesOf(receipt);
  const beads = new Map();
  for (const [name, index] of Object.entries({ ...places, newest: chain.head.index })) {
    if (index) beads.set(index, [...(beads.get(index) ?? []), name]);
  }
  return h("ol", { class: "erasures-chain", "aria-label": "Entries of the ledger about it" }, [...beads].sort(([one], [other]) => one - other).map(([index, names]) =>
    h("li", { class: index === receipt.ledger_index ? "erasures-here" : null }, h("span", { class: "small" }, names.join(", ")), h("code", {}, number(index)))));
}

function titleOf(receipt) {
  const samples = receipt.unlearned === 1 ? "1 sample" : `${number(receipt.unlearned)} samples`;
  const { isErased, isLate } = standing(receipt);
  if (isErased) return `${samples} erased from the model and from all files${isLate ? ", after the deadline" : ""}`;
  return `${samples} unlearned, ${isLate ? "overdue for erasure" : "soon erased"} from files`;
}

function factsOf(receipt) {
  const { isLate } = standing(receipt);
  const took = receipt.erased_at && (Date.parse(receipt.erased_at) - Date.parse(receipt.unlearned_at)) / 1000;
  return [
    ["Kind", capital(receipt.kind)],
    ["Case number", receipt.ref ?? "none"],
    ["Named", `${number(receipt.requested)}, ${number(receipt.absent)} of them not held`],
    ["Guarantee", receipt.guarantee],
    receipt.disclosure && ["Disclosure", `${receipt.disclosure}: ${receipt.disclosure_limits}`],
    ["Model version", number(receipt.model_version)],
    ["Received", time(receipt.received_at)],
    ["Unlearned", time(receipt.unlearned_at)],
    deadlineOf(receipt) && ["Deadline", time(deadlineOf(receipt))],
    ["Erased", [receipt.erased_at ? [time(receipt.erased_at), ` after ${duration(took)}`] : "not yet", isLate && h("strong", { class: "bad" }, ": after the deadline")]],
    ["Downloaded snapshots that contain it", number(receipt.exported_snapshots)],
    receipt.durable ? null : ["On disk", "nothing: the server keeps the model in memory only"],
    ["Receipt", digest(receipt.id, { label: "receipt's id", length: 13 })],
    [`Entry ${number(receipt.ledger_index)}`, digest(receipt.ledger_head, { label: "entry's hash" })],
    ["Key", digest(receipt.key_id, { label: "key's id", length: 16 })],
    ["Signature", digest(receipt.signature, { label: "signature" })],
  ];
}

