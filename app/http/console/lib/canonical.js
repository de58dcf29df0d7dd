// The one form of JSON (RFC 8785) that receipts are signed over and entries of the ledger are hashed over.

const DEEPEST = 32;
const encoder = new TextEncoder();

/** Something that has no canonical form here; the text names the rule and repeats nothing. */
export class CanonicalError extends Error {}

/**
 * Return the canonical form as bytes.
 *
 * Only texts, integers below 2**53, booleans, null, lists and objects are taken, as on the server. Fractions are
 * refused: how they are written is where implementations differ.
 */
export function canonical(content) {
  return encoder.encode(write(content, DEEPEST));
}

function write(value, depth) {
  if (value === null || value === true || value === false) return String(value);
  if (typeof value === "string") return writeText(value);
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) {
      throw new CanonicalError("a number is a fraction, or an integer larger than 2**53 - 1");
    }
    return JSON.stringify(value); // -0 is written as 0
  }
  if (typeof value !== "object") {
    throw new CanonicalError("only texts, integers, booleans, null, lists and objects can be signed");
  }
  if (depth === 0) throw new CanonicalError(`lists and objects are nested deeper than ${DEEPEST} levels`);
  if (Array.isArray(value)) return `[${value.map((item) => write(item, depth - 1)).join(",")}]`;
  // The default order of texts is that of their UTF-16 code units, which RFC 8785 asks for.
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${writeText(name)}:${write(value[name], depth - 1)}`).join(",")}}`;
}

function writeText(text) {
  // Half of a surrogate pair has no UTF-8; JSON.stringify would write it as an escape.
  if (/\p{Surrogate}/u.test(text)) throw new CanonicalError("a text is not valid Unicode");
  return JSON.stringify(text);
}

/** Return an object without some of its members. */
export function without(content, names) {
  return Object.fromEntries(Object.entries(content).filter(([name]) => !names.includes(name)));
}
