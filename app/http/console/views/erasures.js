/** Erasures: every receipt from `unlearned` to `erased`, checked in the browser. */

import { formField, button } from "../elements/field.js";
import { deadlineOf, ring, standing } from "../elements/receipt.js";
import { table } from "../elements/table.js";
import { time } from "../elements/text.js";
import { toast } from "../elements/toast.js";
import { api } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { saveJson } from "../lib/files.js";
import { capital, duration, number, short } from "../lib/format.js";
import { contentOf, Source } from "../lib/receipts.js";
import { checkReceipt } from "../lib/verify.js";
import { View } from "../lib/view.js";
import { Opened } from "./erasures-receipt.js";
import { OUTCOMES, printReport, reportOf } from "./erasures-report.js";

const RELOAD = 1500;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const STATUSES = { "": "All", unlearned: "Not erased yet", overdue: "Overdue", erased: "Erased" };

export default class Erasures extends View {
  static heading = "Erasures";
  #filter = { status: null, ref: null };
  #receipts = [];
  #next = null;
  #checks = new Map(); // outcome and steps, by `contentOf`
  #loading = null;
  #timer = 0;

  async enter({ receipt = null }) {
    this.source = new Source(this.signal);
    this.opened = new Opened(this, this.section("One receipt", { hidden: true }), this.source, this.#checks);
    this.#find(this.section("Find"));
    this.tally = h("p", { class: "muted", role: "status" });
    this.list = this.section("Receipts", { class: "section erasures-all" });
    this.tools = this.section("For the regulator");
    this.#offer();
    const later = () => {
      this.#timer ||= setTimeout(() => this.#reload(), RELOAD);
    };
    let version = null;
    this.on("erasures", later);
    this.on("model", ({ model_version: now }) => {
      if (version !== null && version !== now) later();
      version = now;
    });
    if (receipt) this.opened.open(receipt);
    await this.#load();
  }

  leave() {
    clearTimeout(this.#timer);
  }

  #find(body) {
    const name = "erasures-status";
    const choose = (status) => {
      this.#filter.status = status || null;
      this.#load();
    };
    const choices = Object.entries(STATUSES).map(([status, label]) =>
      h("label", { class: "erasures-choice" },
        h("input", { type: "radio", name, value: status, checked: status === "", onchange: () => choose(status) }), label));
    const control = h("input", { autocomplete: "off", spellcheck: "false" });
    const field = formField({ label: "Case number", control, hint: "The ref of an erasure, a UUID. Empty: all." });
    const onsubmit = (event) => {
      event.preventDefault();
      const ref = control.value.trim();
      field.setError(!ref || UUID.test(ref) ? null : "A case number is a UUID, such as 123e4567-e89b-12d3-a456-426614174000.");
      if (ref && !UUID.test(ref)) return;
      this.#filter.ref = ref || null;
      this.#load();
    };
    replace(body,
      h("fieldset", { class: "row" }, h("legend", { class: "sr-only" }, "Status"), choices),
      h("form", { class: "row erasures-case", onsubmit }, field, h("button", { class: "button", type: "submit" }, "Find")));
  }

  /** Read the newest receipts, as many as are shown, or the first page; `#loading` ends when they are there. */
  #load(least = 1) {
    const load = async (signal) => {
      let [found, next] = [[], null];
      do {
        const query = { ...this.#filter, order: "newest", cursor: next };
        const page = await api.get("/erasures", { query, signal });
        found.push(...page.erasures);
        next = page.next;
      } while (next !== null && found.length < least);
      return { found, next };
    };
    const render = ({ found, next }) => {
      this.#receipts = found;
      this.#next = next;
      return this.#draw();
    };
    const nothing = this.#filter.status || this.#filter.ref ? "No receipt matches." : "Nothing has been erased yet. Each deletion leaves a receipt here.";
    this.#loading = this.show(this.list, load, render, { empty: ({ found }) => {
      if (found.length) return null;
      this.#receipts = [];
      return nothing;
    } });
    return this.#loading;
  }

  async #reload() {
    this.#timer = 0;
    const focused = this.list.contains(document.activeElement) && document.activeElement.querySelector("[data-receipt]")?.dataset.receipt;
    const left = this.list.querySelector(".table-frame")?.scrollLeft ?? 0;
    this.opened.refresh();
    await this.#load(this.#receipts.length);
    this.list.querySelector(".table-frame")?.scrollTo(left, 0);
    if (focused) this.list.querySelector(`[data-receipt="${CSS.escape(focused)}"]`)?.closest("button").focus();
  }

  #draw() {
    const columns = [
      { label: "Receipt", cell: (one) => h("code", { "data-receipt": one.id, title: one.id }, short(one.id, 8)) },
      { label: "Status", cell: statusOf },
      { label: "Kind", cell: (one) => capital(one.kind) },
      { label: "Samples", numeric: true, cell: (one) => number(one.unlearned) },
      { label: "Unlearned", cell: (one) => time(one.unlearned_at) },
      { label: "Erased after", numeric: true, cell: (one) => (one.erased_at ? duration((Date.parse(one.erased_at) - Date.parse(one.unlearned_at)) / 1000) : "–") },
      { label: "Case", cell: (one) => (one.ref ? h("code", { title: one.ref }, short(one.ref, 8)) : "–") },
      { label: "Checked", cell: (one) => outcomeOf(this.#checks.get(contentOf(one))) },
    ];
    const count = this.#receipts.length;
    const more = this.#next && button("Show older", { onclick: () => this.#load(count + 1) });
    const caption = `Receipts, the newest first: ${number(count)}${this.#next ? " and more" : ""}`;
    return [table({ caption, columns, rows: this.#receipts, onOpen: (one) => this.opened.open(one.id) }), more];
  }

  #offer() {
    replace(this.tools,
      h("p", { class: "prose" }, "A report contains the receipts listed above, the public keys, and the results of this browser's checks. It contains no id, subject or value."),
      h("div", { class: "row" },
        button("Check all listed receipts", { onclick: () => this.#checkAll() }),
        button("Report as JSON", { onclick: async () => saveJson("oubli-erasures.json", await this.#report()) }),
        button("Print a report", { onclick: async () => printReport(await this.#report()) })),
      this.tally);
  }

  async #report() {
    await this.#loading;
    return reportOf(this.#receipts, this.#checks, this.source);
  }

  async #checkAll() {
    await this.#loading;
    const counts = { ok: 0, failed: 0, unable: 0 };
    for (const one of this.#receipts) {
      let steps = [];
      const outcome = await checkReceipt(one, this.source, (now) => (steps = now));
      if (this.signal.aborted) return;
      this.#checks.set(contentOf(one), { outcome, steps, at: new Date().toISOString() });
      counts[outcome] += 1;
    }
    this.tally.textContent = Object.entries(counts).filter(([, count]) => count)
      .map(([name, count]) => `${number(count)} ${OUTCOMES[name].toLowerCase()}`).join(", ");
    if (this.#receipts.length) replace(this.list, this.#draw());
    if (counts.failed) toast(`Receipts that do not match the server's key and ledger: ${number(counts.failed)}.`, { kind: "failed" });
  }

  /** Store the result of a check, and show it in the list. */
  note(receipt, check) {
    const content = contentOf(receipt);
    this.#checks.set(content, check);
    if (this.#receipts.some((one) => contentOf(one) === content)) replace(this.list, this.#draw());
  }
}

function statusOf(receipt) {
  const { isErased, isLate, words } = standing(receipt);
  const deadline = !isErased && receipt.durable && deadlineOf(receipt);
  return h("span", { class: `erasures-status${isLate ? " bad" : ""}` },
    ring(receipt), h("span", {}, words, deadline ? h("span", { class: "small" }, " ", time(deadline, { mode: "left" })) : null));
}

const outcomeOf = (check) =>
  check ? h("span", { class: `erasures-${check.outcome}` }, OUTCOMES[check.outcome]) : h("span", { class: "muted" }, "–");

customElements.define("view-erasures", Erasures);
