/** A report for a regulator: receipts with the keys and the ledger's head, as JSON or on paper. */

import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { contentOf } from "../lib/receipts.js";
import { standing } from "../elements/receipt.js";
import { definitions } from "../elements/table.js";

export const OUTCOMES = { ok: "Right", failed: "Wrong", unable: "Could not be checked" };
const UNSIGNED = ["signature", "durable"];
const NOTES = [
  "unlearned: no prediction depends on the samples any more. erased: no file in the server's data directory holds them.",
  "The signature (Ed25519) covers the RFC 8785 form of the receipt without its fields signature and durable. The ledger's entries contain keyed hashes only.",
  "To check a receipt without this server, download the ledger and run: oubli ledger verify LEDGER --receipt RECEIPT --keys KEYS",
  "These checks do not prove that no entry was cut off at the end of the ledger, or that the server did what it wrote.",
];

/** Return the report on some receipts. */
export async function reportOf(receipts, checks, source) {
  const named = new Set(receipts.map(({ key_id: id }) => id));
  return {
    report: "oubli erasures",
    server: new URL("../../", import.meta.url).href,
    made_at: new Date().toISOString(),
    notes: NOTES,
    keys: (await source.keys()).filter(({ key_id: id }) => named.has(id)),
    receipts: receipts.map((receipt) => ({ receipt, check: checks.get(contentOf(receipt)) ?? null })),
  };
}

/** Print a report; the rest of the page is not printed. */
export function printReport(report) {
  const root = document.documentElement;
  const page = h("article", { class: "erasures-paper" },
    h("h1", {}, "Report on erasures"),
    definitions([["Server", report.server], ["Made", utc(report.made_at)], ["Receipts", number(report.receipts.length)]]),
    report.receipts.map(paperOf),
    h("h2", {}, "Public keys"),
    definitions(report.keys.map((key) => [`${key.key_id} (${key.status})`, `${key.algorithm} ${key.public_key}`])),
    h("h2", {}, "How to read this"),
    h("ul", {}, report.notes.map((note) => h("li", {}, note))));
  const end = () => {
    page.remove();
    root.classList.remove("erasures-printing");
  };
  document.body.append(page);
  root.classList.add("erasures-printing");
  addEventListener("afterprint", end, { once: true });
  print();
}

function paperOf({ receipt, check }) {
  const fields = Object.entries(receipt).filter(([name]) => !UNSIGNED.includes(name));
  const checked = check
    ? [h("p", {}, `Checked in a browser on ${utc(check.at)}: ${OUTCOMES[check.outcome].toLowerCase()}.`),
        h("ol", {}, check.steps.map(({ name, reason }) => h("li", {}, `${name}: ${reason}`)))]
    : h("p", {}, "Not checked in the browser that made this report.");
  return h("section", {},
    h("h2", {}, `Receipt ${receipt.id}: ${standing(receipt).words.toLowerCase()}`),
    definitions([...fields.map(([name, value]) => [name, value === null ? "none" : String(value)]), ["signature", receipt.signature]]),
    checked);
}

const utc = (iso) => `${iso.replace("T", " ").replace(/\.\d+Z$/, "")} UTC`;
