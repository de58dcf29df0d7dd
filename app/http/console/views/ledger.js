/** Ledger and access: the entries, the keys that sign, and what each key may do. */

import { button } from "../elements/field.js";
import { state } from "../elements/state.js";
import { definitions, table } from "../elements/table.js";
import { digest, quoted, time } from "../elements/text.js";
import { api } from "../lib/api.js";
import { CheckError } from "../lib/chain.js";
import { h, replace } from "../lib/dom.js";
import { save } from "../lib/files.js";
import { capital, number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { Source } from "../lib/receipts.js";
import { session } from "../lib/session.js";
import { whyUnable } from "../lib/verify.js";
import { View } from "../lib/view.js";

const PAGE = 50;
const RELOAD = 1500;
const PATIENCE = 3000;
const ALWAYS = new Set(["index", "previous", "type", "at", "hash"]);
const SCOPES = {
  predict: "ask for predictions",
  explain: "what each feature adds to predictions",
  write: "add and rectify samples",
  erase: "delete samples, restrict subjects, and see the receipts",
  read: "samples, snapshots, receipts, the ledger, influence",
  audit: "openings and states",
  admin: "everything, including actions on the whole model",
};

export default class Ledger extends View {
  static heading = "Ledger and access";
  #entries = [];
  #timer = 0;

  async enter() {
    if (session.can("read")) {
      this.source = new Source(this.signal);
      this.#offer(this.section("The chain"));
      this.list = this.section("Timeline");
      this.on("ledger", () => (this.#timer ||= setTimeout(() => this.#newer(), RELOAD)));
      this.#show();
    }
    const keys = this.section("Public keys");
    this.show(keys, (signal) => api.get("/ledger/keys", { signal }), (answer) => keysOf(answer.keys));
    const access = this.section("Access");
    await this.show(access, (signal) => api.get("/access", { signal }), accessOf);
  }

  leave() {
    clearTimeout(this.#timer);
  }

  /** Return the entries after an index, at most so many; the server may have shorter pages. */
  async #after(index, most) {
    const found = [];
    for (let cursor = index || null; ; ) {
      const page = await api.get("/ledger", { query: { cursor }, signal: this.signal });
      found.push(...page.entries);
      cursor = page.next;
      if (cursor === null || found.length >= most) return found.slice(0, most);
    }
  }

  /** Read the newest entries. */
  #show() {
    const load = async () => {
      const last = live.sections.ledger?.index ?? (await this.#told());
      return this.#after(Math.max(0, last - PAGE), PAGE);
    };
    const render = (entries) => {
      this.#entries = entries.reverse();
      return this.#draw();
    };
    return this.show(this.list, load, render, { empty: (entries) => (entries.length ? null : "The ledger has no entries yet.") });
  }

  /** Return the index of the newest entry as soon as the server sends it. */
  #told() {
    return new Promise((resolve) => {
      this.on("ledger", ({ index }) => resolve(index));
      setTimeout(() => resolve(0), PATIENCE);
    });
  }

  async #newer() {
    this.#timer = 0;
    if (!this.#entries.length) return void this.#show();
    const fresh = await this.#after(this.#entries[0].index, PAGE).catch(() => []);
    if (fresh.length === PAGE) return void this.#show();
    if (!fresh.length || this.signal.aborted) return;
    this.#entries = [...fresh.reverse(), ...this.#entries];
    this.line.prepend(...fresh.map(entryOf));
  }

  async #older() {
    const first = this.#entries.at(-1).index;
    const from = Math.max(0, first - 1 - PAGE);
    const older = (await this.#after(from, first - 1 - from)).reverse();
    this.#entries.push(...older);
    this.line.append(...older.map(entryOf));
    this.more.hidden = this.#entries.at(-1).index === 1;
  }

  #draw() {
    this.line = h("ol", { class: "ledger-line" }, this.#entries.map(entryOf));
    this.more = button("Show older", { onclick: () => this.#older() });
    this.more.hidden = this.#entries.at(-1).index === 1;
    return [this.line, h("div", {}, this.more)];
  }

  #offer(body) {
    const said = h("p", { role: "status" });
    const check = async () => {
      const unable = await whyUnable();
      if (unable) return void (said.textContent = `Not checked. ${unable}`);
      said.className = "";
      try {
        const { head } = await this.source.chain((index) => (said.textContent = `Checking entry ${number(index)}.`));
        said.className = "good";
        replace(said, `All ${number(head.index)} entries are unchanged and follow each other. The newest: `, digest(head.hash, { label: "newest entry's hash" }));
      } catch (error) {
        if (!(error instanceof CheckError)) throw error;
        said.className = "bad";
        said.textContent = `The chain is broken. ${error.message}`;
      }
    };
    replace(body,
      h("p", { class: "prose muted" }, "Each entry contains the hash of the one before, so a changed, missing or inserted entry is detected. Keep the newest hash somewhere else: with it you can also detect that the end of the ledger was cut off."),
      h("div", { class: "row" }, button("Check all entries", { onclick: check }), button("Download the ledger", { onclick: () => this.#download() })), said);
  }

  /** Save all entries in the format of `oubli ledger verify`: one a line. */
  async #download() {
    const lines = [];
    for (let cursor = null; ; ) {
      const page = await api.get("/ledger", { query: { cursor }, signal: this.signal });
      lines.push(...page.entries.map((entry) => `${JSON.stringify(entry)}\n`));
      cursor = page.next;
      if (cursor === null) return save("oubli-ledger.jsonl", new Blob(lines, { type: "application/x-ndjson" }));
    }
  }
}

function entryOf(entry) {
  const facts = Object.entries(entry).filter(([name, value]) => !ALWAYS.has(name) && !Array.isArray(value) && typeof value !== "object");
  const lists = Object.entries(entry).filter(([, value]) => Array.isArray(value));
  return h("li", { class: `ledger-entry ledger-${entry.type}` },
    h("span", { class: "ledger-index" }, number(entry.index)),
    h("details", {},
      h("summary", {}, h("strong", {}, capital(String(entry.type).replaceAll("-", " "))), " ", h("span", { class: "muted" }, summaryOf(entry)), " ", h("span", { class: "ledger-time small muted" }, time(entry.at))),
      definitions([
          ...facts.map(([name, value]) => [name.replaceAll("_", " "), name.endsWith("_at") ? time(value) : quoted(value)]),
          ...lists.map(([name, value]) => [name.replaceAll("_", " "), `${number(value.length)} listed`]),
          ["hash", digest(entry.hash, { label: "hash" })],
          ["hash before", digest(entry.previous, { label: "hash of the entry before" })],
        ])));
}

function summaryOf(entry) {
  const samples = (count) => (count === 1 ? "1 sample" : `${number(count)} samples`);
  if (entry.type === "unlearned") return `${samples(entry.unlearned)} by ${entry.kind}`;
  if (entry.type === "erased") {
    const late = entry.overdue?.length;
    return [`${entry.receipts.length === 1 ? "1 erasure" : `${number(entry.receipts.length)} erasures`} finished`, late ? h("strong", { class: "bad" }, `, ${number(late)} after the deadline`) : null];
  }
  if (entry.type === "signing-key") return `${entry.key_id} signs from this entry on`;
  return "";
}

function keysOf(keys) {
  return table({
    caption: "Public keys that sign receipts",
    rows: keys,
    columns: [
      { label: "Key", cell: (key) => h("code", {}, key.key_id) },
      { label: "State", cell: (key) => capital(key.status) },
      { label: "Since", cell: (key) => time(key.created_at) },
      { label: "Until", cell: (key) => (key.retired_at ? time(key.retired_at) : "–") },
      { label: "Public half", cell: (key) => digest(key.public_key, { label: "public key", length: 20 }) },
    ],
  });
}

function accessOf(access) {
  const mine = access.scopes.map((scope) => [h("code", {}, scope), SCOPES[scope] ?? "see the documentation"]);
  const who = access.asks_for_key
    ? ["This page's key ", access.name === null ? "" : quoted(access.name), access.expires_at ? [" expires on ", time(access.expires_at), "."] : " does not expire.", " It may:"]
    : "This server needs no key. Everybody who can reach it may:";
  return [h("p", {}, who), definitions(mine), access.keys ? allKeys(access.keys) : null];
}

function allKeys(keys) {
  if (!keys.length) return state("empty", "There are no keys. Make one with the command oubli keys create.");
  return [h("h3", {}, "All keys"), table({
    caption: "Keys of this server",
    rows: keys,
    columns: [
      { label: "Name", cell: (key) => quoted(key.name) },
      { label: "Id", cell: (key) => (key.id === null ? "–" : h("code", {}, key.id)) },
      { label: "Scopes", cell: (key) => key.scopes.join(", ") },
      { label: "State", cell: (key) => h("span", { class: key.status === "live" ? null : "muted" }, capital(key.status)) },
      { label: "Created", cell: (key) => (key.created_at ? time(key.created_at) : "–") },
      { label: "Expires", cell: (key) => (key.expires_at ? time(key.expires_at) : "never") },
    ],
  }), h("p", { class: "small muted" }, "To make or revoke keys, use `oubli keys`.")];
}

customElements.define("view-ledger", Ledger);
