// Checks a receipt without the server's help: its signature, and its place in the hash chain of the ledger.

import { canonical, CanonicalError, without } from "./canonical.js";
import { CheckError, sha256 } from "./chain.js";

const ALGORITHM = "Ed25519";
const KEY_ID_DIGITS = 16;
const KEY_BYTES = 32;
const FIELDS = [
  "id", "ref", "kind", "status", "guarantee", "requested", "unlearned", "absent", "exported_snapshots",
  "model_version", "received_at", "unlearned_at", "erased_at", "overdue", "key_id", "ledger_index", "ledger_head",
  "signature",
];
// Receipts of earlier versions have none of the fields of a group, named by its first.
const LATER = [["by", "held", "deadline"], ["disclosure", "disclosure_limits"]];
const BESIDE = "durable"; // a field of the answer that is not part of the receipt
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** What is checked, in order. Each step but the first needs another one. */
const STEPS = [
  { name: "Form", check: checkForm },
  { name: "Key", needs: "Form", check: checkKey },
  { name: "Signature", needs: "Key", check: checkSignature },
  { name: "Chain", needs: "Form", check: checkChain },
  { name: "Place in the chain", needs: "Chain", check: checkPlace },
  { name: "Content", needs: "Chain", check: checkContent },
  { name: "Key in the ledger", needs: "Chain", check: checkToldKey },
];

/** Return why this browser cannot check signatures and hashes here; null when it can. */
export async function whyUnable() {
  if (globalThis.crypto?.subtle === undefined) {
    return globalThis.isSecureContext
      ? "This browser has no WebCrypto. Use a newer one, or check with the command oubli ledger verify."
      : "Browsers offer WebCrypto only over HTTPS and on the same computer, and this page came over plain HTTP. " +
          "Serve it over HTTPS, or check with the command oubli ledger verify.";
  }
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(KEY_BYTES), ALGORITHM, false, ["verify"]);
  } catch {
    return "The WebCrypto of this browser has no Ed25519. Use a newer one, or check with the command oubli ledger verify.";
  }
  return null;
}

/**
 * Check a receipt step by step.
 *
 * A step has a `name`, a `state` ("waiting", "running", "ok", "failed", or "unable" when it cannot be checked) and a
 * `reason`, the sentence that says why.
 *
 * @param {object} receipt as the server has answered it
 * @param {{keys: () => Promise<object[]>, chain: (report: (index: number) => void) => Promise<Chain>}} source
 *   answers the public keys, and the checked ledger
 * @param {(steps: object[]) => void} show gets all steps whenever one has changed
 * @returns {Promise<"ok" | "failed" | "unable">}
 */
export async function checkReceipt(receipt, source, show) {
  const steps = STEPS.map(({ name }) => ({ name, state: "waiting", reason: "" }));
  const unable = await whyUnable();
  const known = { receipt, source };
  for (const [place, { needs, check }] of STEPS.entries()) {
    const step = steps[place];
    const needed = steps.find(({ name }) => name === needs);
    if (needed !== undefined && needed.state !== "ok") {
      Object.assign(step, { state: "unable", reason: `Not checked: this needs the step "${needs}".` });
    } else if (needed !== undefined && unable !== null) {
      Object.assign(step, { state: "unable", reason: unable });
    } else {
      step.state = "running";
      show(steps);
      const report = (reason) => {
        step.reason = reason;
        show(steps);
      };
      try {
        step.reason = await check(known, report);
        step.state = "ok";
      } catch (error) {
        const isWrong = error instanceof CheckError || error instanceof CanonicalError;
        Object.assign(step, { state: isWrong ? "failed" : "unable", reason: error.message });
      }
    }
    show(steps);
  }
  if (steps.some(({ state }) => state === "failed")) return "failed";
  return steps.every(({ state }) => state === "ok") ? "ok" : "unable";
}

function checkForm(known) {
  const { receipt } = known;
  const names = Object.keys(receipt).filter((name) => name !== BESIDE);
  const fields = [...FIELDS, ...LATER.filter(([first]) => first in receipt).flat()];
  if (names.length !== fields.length || !fields.every((name) => names.includes(name))) {
    throw new CheckError("It does not have the fields of a receipt.");
  }
  const texts = ["id", "key_id", "ledger_head", "signature"];
  if (!texts.every((name) => typeof receipt[name] === "string") || !Number.isSafeInteger(receipt.ledger_index)) {
    throw new CheckError("A field has another type than in a receipt.");
  }
  known.signed = canonical(without(receipt, ["signature", BESIDE]));
  return `It has the fields of a receipt. ${known.signed.length} bytes of it are signed.`;
}

async function checkKey(known) {
  const id = known.receipt.key_id;
  const found = (await known.source.keys()).find((key) => key.key_id === id);
  if (found === undefined) throw new CheckError("The server publishes no key with the id that the receipt names.");
  const bytes = decodeBase64(found.public_key);
  if (found.algorithm !== ALGORITHM || bytes?.length !== KEY_BYTES) throw new CheckError("It is not an Ed25519 key.");
  if ((await sha256(bytes)).slice(0, KEY_ID_DIGITS) !== id) {
    throw new CheckError("The id of the published key does not match the key.");
  }
  known.publicKey = found.public_key;
  return `The server publishes key ${id}, and the SHA-256 of the key begins with this id.`;
}

async function checkSignature({ receipt, publicKey, signed }) {
  const signature = decodeBase64(receipt.signature);
  const key = await crypto.subtle.importKey("raw", decodeBase64(publicKey), ALGORITHM, false, ["verify"]);
  if (signature === null || !(await crypto.subtle.verify(ALGORITHM, key, signature, signed))) {
    throw new CheckError("The signature does not match the content: something in the receipt was changed.");
  }
  return "The owner of the key signed exactly this content.";
}

async function checkChain(known, report) {
  known.chain = await known.source.chain((index) => report(`Checking entry ${index.toLocaleString()}.`));
  return `All ${known.chain.head.index.toLocaleString()} entries of the ledger are unchanged and follow each other.`;
}

function checkPlace({ receipt, chain }) {
  chain.checkPlace(receipt);
  return `Entry ${receipt.ledger_index} of the ledger is the one that the receipt names.`;
}

function checkContent({ receipt, chain }) {
  chain.checkContent(receipt);
  return "The ledger and the receipt agree in every field.";
}

function checkToldKey({ receipt, chain, publicKey }) {
  const told = chain.keys.get(receipt.key_id);
  if (told === undefined) throw new CheckError("No entry of the ledger names the key that signed.");
  if (publicKey !== undefined && told.public_key !== publicKey) {
    throw new CheckError("The ledger has another key with this id.");
  }
  return `Entry ${told.index} of the ledger names the same key.`;
}

function decodeBase64(text) {
  return BASE64.test(text) ? Uint8Array.from(atob(text), (character) => character.charCodeAt(0)) : null;
}
