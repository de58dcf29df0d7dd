// The hash chain of the ledger, checked entry by entry without the server's help.
//
// An altered, dropped, inserted or moved entry is detected at its place or at the next one. The chain alone does not show
// that entries were cut off at the end, or that the chain was rewritten from some entry on: a receipt or a hash that was
// kept somewhere else shows both.

import { canonical, CanonicalError, without } from "./canonical.js";

const FIRST_PREVIOUS = "0".repeat(64);
const TEXTS = ["previous", "type", "at", "hash"];
const FIELDS_OF_RECEIPT = [ // those of the last line are in no entry and no receipt of earlier versions
  "ref", "kind", "guarantee", "requested", "unlearned", "absent", "exported_snapshots", "model_version", "received_at",
  "unlearned_at",
  "by", "held", "deadline", "disclosure", "disclosure_limits",
];

/** Something does not hold; the text names the rule. */
export class CheckError extends Error {}

/** Return the SHA-256 of some bytes in hexadecimal. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The content of the entries read so far, from the first of the ledger. */
export class Chain {
  /** The newest entry: index and hash. */
  head = { index: 0, hash: FIRST_PREVIOUS };
  /** Entries that tell of signing keys, by id of the key. */
  keys = new Map();
  #begun = new Map();
  #finished = new Map();
  #seen = new Set();
  #latest = -Infinity;

  /** Take in the next entries; `CheckError` when one of them is not whole, or not the next. */
  async take(entries) {
    const bodies = entries.map((entry, place) => readEntry(entry, this.head.index + 1 + place));
    const hashes = await Promise.all(bodies.map(sha256));
    for (const [place, entry] of entries.entries()) {
      this.#follow(entry, hashes[place]);
      this.#understand(await originalOf(entry), this.head.index);
    }
  }

  #follow(entry, hash) {
    const index = this.head.index + 1;
    const at = Date.parse(entry.at);
    if (hash !== entry.hash) wrong(index, "was changed: its hash is not that of its content");
    if (entry.index !== index) wrong(index, "is missing, or is not in its place");
    if (entry.previous !== this.head.hash) {
      wrong(index, "does not follow the one before: that one was replaced or changed");
    }
    if (Number.isNaN(at)) wrong(index, "has no time");
    if (at < this.#latest) wrong(index, "is older than the one before");
    this.#latest = at;
    this.head = { index, hash };
  }

  #understand(entry, index) {
    if (entry.type === "signing-key") {
      this.keys.set(entry.key_id, entry);
    } else if (entry.type === "unlearned") {
      if (this.#begun.has(entry.receipt)) wrong(index, "records an erasure for the second time");
      this.#begun.set(entry.receipt, entry);
      this.#seen.add(`${entry.index} ${entry.hash}`);
    } else if (entry.type === "erased") {
      if (!Array.isArray(entry.receipts)) wrong(index, "does not say what is erased");
      this.#seen.add(`${entry.index} ${entry.hash}`);
      for (const id of entry.receipts) if (!this.#finished.has(id)) this.#finished.set(id, entry);
    }
  }

  /** Return the indexes of the entries that tell of a receipt, and of its key; undefined where there is none. */
  placesOf({ id, key_id: key }) {
    return { key: this.keys.get(key)?.index, unlearned: this.#begun.get(id)?.index, erased: this.#finished.get(id)?.index };
  }

  /** Check that the entry that a receipt names is in its place. */
  checkPlace({ ledger_index: index, ledger_head: hash }) {
    if (this.#seen.has(`${index} ${hash}`)) return;
    if (index > this.head.index) {
      const last = this.head.index;
      throw new CheckError(`The receipt names entry ${index}, but the ledger ends with ${last}: entries were cut off.`);
    }
    wrong(index, "was replaced after the receipt was signed");
  }

  /** Check that the ledger tells the same of an erasure as its receipt does. */
  checkContent(receipt) {
    const begun = this.#begun.get(receipt.id);
    const finished = this.#finished.get(receipt.id);
    if (begun === undefined) throw new CheckError("No entry of the ledger is about this erasure.");
    if (receipt.status === "erased" && finished === undefined) {
      throw new CheckError("No entry of the ledger says that this is erased.");
    }
    const expected = receipt.status === "erased" ? erasedState(begun, finished) : unlearnedState(begun);
    // A pending receipt says `overdue` after its deadline; its entry was written before.
    if (receipt.status === "unlearned") expected.overdue = receipt.overdue;
    for (const [field, value] of Object.entries(expected)) {
      if (receipt[field] !== value) throw new CheckError(`The ledger has another value of "${field}".`);
    }
  }
}

function wrong(index, rule) {
  throw new CheckError(`Entry ${index} ${rule}.`);
}

/** Return the bytes that the hash of an entry covers. */
function readEntry(entry, index) {
  const isEntry =
    typeof entry === "object" && entry !== null && Number.isSafeInteger(entry.index) &&
    TEXTS.every((name) => typeof entry[name] === "string");
  if (!isEntry) wrong(index, "is not an entry");
  try {
    return canonical(without(entry, ["hash"]));
  } catch (error) {
    if (!(error instanceof CanonicalError)) throw error;
    return wrong(index, "contains a value that no entry may contain");
  }
}

/** Return the entry of another chain that an entry carries, or the entry itself. */
async function originalOf(entry) {
  if (entry.type !== "carried-over") return entry;
  const hash = await sha256(readEntry(entry.entry, entry.index));
  if (hash !== entry.entry.hash) wrong(entry.index, "was changed: its hash is not that of its content");
  return entry.entry;
}

// Not the key: where one was retired before the ledger's file was made, the next one has signed.
function unlearnedState(entry) {
  return {
    ...Object.fromEntries(FIELDS_OF_RECEIPT.map((field) => [field, entry[field]])),
    id: entry.receipt,
    status: "unlearned",
    erased_at: null,
    overdue: false,
    ledger_index: entry.index,
    ledger_head: entry.hash,
  };
}

function erasedState(begun, finished) {
  // Times cannot tell whether it was too late: clocks are set. Entries of earlier versions have nothing else.
  const overdue = Array.isArray(finished.overdue)
    ? finished.overdue.includes(begun.receipt)
    : Date.parse(finished.erased_at) > Date.parse(begun.unlearned_at) + Number(finished.deadline_ms);
  return {
    ...unlearnedState(begun),
    status: "erased",
    erased_at: finished.erased_at,
    overdue,
    ledger_index: finished.index,
    ledger_head: finished.hash,
  };
}
