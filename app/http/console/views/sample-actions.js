/** What is done with samples and people: what will happen is said before, and what has happened after. */

import { confirm, sheet } from "../elements/dialog.js";
import { button } from "../elements/field.js";
import { jobProgress } from "../elements/job.js";
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
  exact: (it) => `The model is then the one that training without ${it} would give.`,
  "epsilon-feasible": (it) => `The model then stays within its bounds of one that was trained without ${it}, until a scrub makes it that one.`,
  approximate: (it) => `The model is then near one that was trained without ${it}, until a scrub makes it that one.`,
};

/** Erase samples by ids, or all samples of subjects, after somebody has agreed; `onDone` gets the receipt to show. */
export async function erase(targets, { onDone }) {
  const isPerson = Boolean(targets.subjects);
  const [name] = targets.subjects ?? targets.ids;
  const counted = isPerson && session.can("read") ? await count(name) : null;
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
    h("li", {}, "It cannot be undone. Files that were exported or downloaded before keep what they hold."),
  ];
  if (!(await confirm({ title, body: [h("p", {}, what), h("ol", { class: "steps" }, steps)], action: isPerson ? "Forget the person" : "Forget the sample", danger: true }))) return;
  const made = await api.post("/samples/batch-delete", targets); // the same again answers with the receipt that there is
  onDone(made.unlearned || made.status === "erased" ? receipt(made) : h("p", { role: "status" }, "Nothing was held under this name, and nothing was changed."));
}

async function count(subject) {
  try {
    const page = await api.post("/samples/search", { subject, limit: PAGE });
    const n = page.samples.length;
    return page.next ? ` (more than ${number(n)})` : n === 1 ? " (1 sample)" : ` (${number(n)} samples)`;
  } catch (error) {
    if (error.slug === "not-held") return " (none is held)";
    if (error.slug === "invalid-input") return ""; // pages are shorter here
    throw error;
  }
}

/** Restrict a subject, or release it. */
export async function restrict(subject, { release = false, onDone }) {
  const text = release
    ? "The model learns from the samples of this person again. Samples whose time is over are erased instead."
    : "The samples of this person leave the model and are kept: they can be read, rectified, released and erased. New samples of the person are refused.";
  const action = release ? "Release" : "Restrict";
  if (!(await confirm({ title: `${action} this person?`, body: [h("p", {}, quoted(subject)), h("p", {}, text)], action }))) return;
  const made = await api.post(release ? "/subjects/release" : "/subjects/restrict", { subjects: [subject] }, { once: true });
  const n = made.samples === 1 ? "1 sample" : `${number(made.samples)} samples`;
  toast(made.absent ? (release ? "This person is not restricted: nothing was changed." : "Nothing is held about this person.") : release ? `${n} are learned from again.` : `${n} have left the model and are kept.`);
  onDone();
}

/** Make a bundle of all that is held about a subject, and save it as a file. */
export async function exportSubject(subject) {
  const body = h("div", { class: "stack" });
  const dialog = sheet({ title: "Export what is held", body });
  const make = (type, extension) => async () => {
    const headers = { "Content-Type": "application/json", Accept: type };
    let answer = await api.raw("POST", "/subjects/export", { body: JSON.stringify({ subject }), headers });
    if (answer.status === 202) {
      const job = await answer.json();
      const ended = await new Promise((resolve) => replace(body, jobProgress(job, { label: "Making the bundle", onEnd: resolve })));
      if (ended.status !== "succeeded") return;
      answer = await api.raw("GET", `/exports/${ended.result.export}`, { headers: { Accept: type } });
    }
    save(await answer.blob(), `export.${extension}`);
    dialog.close();
    toast("The export is in your downloads.");
  };
  replace(body, h("p", {}, "All samples of ", quoted(subject), ", since when and from which request they are held, and the receipts. As CSV it has the samples alone."),
    h("div", { class: "row" }, button("Save as JSON", { kind: "primary", onclick: make("application/json", "json") }), button("Save as CSV", { onclick: make("text/csv", "csv") })));
}

/** Have the browser save something as a file. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
