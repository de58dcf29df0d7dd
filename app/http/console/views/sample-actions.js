/** Actions on samples and people: each says before what will happen, and after it what has happened. */

import { confirm, sheet } from "../elements/dialog.js";
import { button } from "../elements/field.js";
import { resultOf } from "../elements/job.js";
import { receipt } from "../elements/receipt.js";
import { toast } from "../elements/toast.js";
import { quoted } from "../elements/text.js";
import { api } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { duration, number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";

const PAGE = 1000;
const UNLEARNED = {
  exact: (it) => `The model is then exactly the one you would have trained without ${it}.`,
  "epsilon-feasible": (it) => `Every split of the model is then within its bound of the best one, and a scrub rebuilds it without ${it}.`,
  approximate: (it) => `The model is then close to one that was trained without ${it}, and a scrub rebuilds it without ${it}.`,
};

/**
 * Erase samples by ids, or all samples of subjects, after a confirmation; `onDone` gets the receipt to show. An aborted
 * signal closes the confirmation.
 */
export async function erase(targets, { onDone, signal }) {
  const isPerson = Boolean(targets.subjects);
  const [name] = targets.subjects ?? targets.ids;
  const counted = isPerson && session.can("read") ? await count(name, signal) : null;
  const title = isPerson ? "Forget this person?" : "Forget this sample?";
  const what = isPerson ? ["All samples of ", quoted(name), counted] : ["Sample ", quoted(name)];
  const seconds = live.sections.erasures?.deadline_s;
  const { guarantee, durable } = live.model;
  const it = isPerson ? "them" : "it";
  const steps = [
    h("li", {}, `At once: no prediction depends on ${it} any more. `, UNLEARNED[guarantee](it)),
    durable && guarantee === "exact" && h("li", {}, seconds ? `Within ${duration(seconds)}: ` : "Soon after: ", `no file in the data directory holds ${it}.`),
    durable && guarantee !== "exact" && h("li", {}, `After the next scrub: no file in the data directory holds ${it}.`),
    h("li", {}, "A signed receipt says what was done and when. It holds no id and no subject."),
    h("li", {}, "You cannot undo this. Files that were exported or downloaded before still contain the data."),
  ];
  if (!(await confirm({ title, body: [h("p", {}, what), h("ol", { class: "steps" }, steps)], action: isPerson ? "Forget the person" : "Forget the sample", danger: true }))) return;
  const made = await api.post("/samples/batch-delete", targets); // a repetition gets the existing receipt
  onDone(made.unlearned || made.status === "erased" ? receipt(made) : h("p", { role: "status" }, "Nothing was held under this name, so nothing changed."));
}

async function count(subject, signal) {
  try {
    const page = await api.post("/samples/search", { subject, limit: PAGE }, { signal });
    const n = page.samples.length;
    if (!n) return " (none is held)";
    return page.next ? ` (more than ${number(n)})` : n === 1 ? " (1 sample)" : ` (${number(n)} samples)`;
  } catch (error) {
    if (error.slug === "invalid-input") return ""; // pages are shorter here
    throw error;
  }
}

/** Restrict a subject, or release it. */
export async function restrict(subject, { release = false, onDone }) {
  const text = release
    ? "The model learns from the samples of this person again. Samples that have expired are erased instead."
    : "The model unlearns the samples of this person, and the server keeps them: you can read, rectify, release and erase them. New samples of the person are refused.";
  const action = release ? "Release" : "Restrict";
  if (!(await confirm({ title: `${action} this person?`, body: [h("p", {}, quoted(subject)), h("p", {}, text)], action }))) return;
  const made = await api.post(release ? "/subjects/release" : "/subjects/restrict", { subjects: [subject] }, { once: true });
  const n = made.samples === 1 ? "1 sample" : `${number(made.samples)} samples`;
  toast(made.absent ? (release ? "This person is not restricted: nothing changed." : "Nothing is held about this person.") : release ? `The model learns from ${n} again.` : `Restricted: ${n}. The server keeps them, and the model no longer learns from them.`);
  onDone();
}

/** Export everything that is held about a subject, and save it as a file. */
export async function exportSubject(subject) {
  const body = h("div", { class: "stack" });
  const dialog = sheet({ title: "Export what is held", body });
  const make = (type, extension) => async () => {
    const headers = { "Content-Type": "application/json", Accept: type };
    let answer = await api.raw("POST", "/subjects/export", { body: JSON.stringify({ subject }), headers });
    if (answer.status === 202) {
      const made = await resultOf(await answer.json(), body, { label: "Making the bundle", signal: dialog.signal, onCancel: () => dialog.close() });
      answer = await api.raw("GET", made.url, { headers: { Accept: type } });
    }
    dialog.signal.throwIfAborted();
    save(await answer.blob(), `export.${extension}`);
    dialog.close();
    toast("The export is in your downloads.");
  };
  replace(body, h("p", {}, "All samples of ", quoted(subject), ", when and by which request they were added, and the receipts. The CSV file has the samples only."),
    h("div", { class: "row" }, button("Save as JSON", { kind: "primary", onclick: make("application/json", "json") }), button("Save as CSV", { onclick: make("text/csv", "csv") })));
}

/** Save something as a file in the browser. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
