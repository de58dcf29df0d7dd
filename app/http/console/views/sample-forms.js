/** Forms for a new sample, and for the correction of one. */

import { sheet } from "../elements/dialog.js";
import { button, formField } from "../elements/field.js";
import { receipt } from "../elements/receipt.js";
import { state } from "../elements/state.js";
import { quoted, time } from "../elements/text.js";
import { api, ApiError, explain } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { labelField, readColumns, rowForm } from "./row-form.js";

/** Correct a sample that is held; `onDone` gets the receipt to show. */
export async function rectify(sample, { onDone, signal }) {
  const columns = await readColumns(signal);
  const form = rowForm(columns);
  const label = labelField();
  const subject = textField("Subject", "Leave it empty for none.", sample.subject ?? "");
  const [expires, weight] = [expiryField(sample.expires_at), weightField(sample.weight)];
  form.set(sample.features);
  label.write(sample.label);
  const act = button("Replace the values", { kind: "primary", onclick: async () => {
    const [features, value, end, size] = [form.row(), label.read(), expires.read(), weight.read()];
    if (!features || value === undefined || end === undefined || size === undefined) return form.focusError();
    const body = { features, label: value, subject: subject.control.value || null, expires_at: end, weight: size };
    return sending(wrong, form, { label, subject, expires, weight }, async () => {
      const made = await api.put("/samples", body, { query: { id: sample.id }, once: true }); // not every id can be in a path
      dialog.close();
      onDone(receipt(made));
    });
  } });
  const wrong = h("div", {});
  const dialog = sheet({
    title: "Rectify the sample",
    body: [h("p", {}, "Sample ", quoted(sample.id), ": the model learns the new values and unlearns the old ones. The old values are erased like those of a deleted sample."), form.node, label.node, subject.node, expires.node, weight.node, wrong],
    foot: [act],
  });
}

/** The form of a new sample. */
export function additionForm(columns, { onDone }) {
  const form = rowForm(columns);
  const label = labelField();
  const id = textField("Id", "If you leave it empty, the server chooses one.");
  const subject = textField("Subject", "The person that the sample is about; may be empty.");
  const [expires, weight] = [expiryField(null), weightField(1)];
  const [wrong, outcome] = [h("div", {}), h("div", { role: "status" })];
  form.set({});
  const send = async (readd = false) => {
    replace(outcome);
    const [features, value, end, size] = [form.row(), label.read(), expires.read(), weight.read()];
    if (!features || value === undefined || end === undefined || size === undefined) return form.focusError();
    const sample = { features, label: value };
    if (id.control.value) sample.id = id.control.value;
    if (subject.control.value) sample.subject = subject.control.value;
    if (end) sample.expires_at = end;
    if (size) sample.weight = size;
    if (readd) sample.readd = true;
    return sending(wrong, form, { label, id, subject, expires, weight }, async () => {
      const made = await api.post("/samples", { samples: [sample] }, { once: true });
      replace(outcome, h("p", {}, "The model has learned sample ", quoted(made.ids[0]), ` and holds ${number(made.n_samples)}.`));
      onDone(made);
    }, () => button("Add it anyway", { onclick: () => send(true) }));
  };
  return h("div", { class: "stack" }, form.node, h("div", { class: "row-form" }, label.node, id.node, subject.node, expires.node, weight.node), wrong,
    h("div", { class: "row" }, button("Add the sample", { kind: "primary", onclick: () => send() })), outcome);
}

/** Run `work`, and show each error of the server beside its field. */
async function sending(place, form, beside, work, offerReadd = null) {
  replace(place);
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const rest = form.explain(error.errors).filter((one) => {
      const name = one.pointer.split("/").pop().replace("expires_at", "expires");
      beside[name]?.complain(one.detail);
      return !beside[name];
    });
    const isPlaced = error.errors.length > 0 && rest.length === 0;
    const text = isPlaced && !["id-conflict", "erased-lately", "restricted"].includes(error.slug) ? "A value is wrong: see the message at its field. Nothing was changed." : explain(error);
    replace(place, state("error", text), error.slug === "erased-lately" && offerReadd?.());
  }
}

function textField(label, hint, value = "") {
  const control = h("input", { autocomplete: "off", spellcheck: "false", maxlength: "256", value });
  const node = formField({ label, hint, control });
  control.addEventListener("input", () => node.setError(null));
  return { node, control, complain: (text) => node.setError(text) };
}

/** The field of an expiry time, in the viewer's zone. */
function expiryField(iso) {
  const control = h("input", { type: "datetime-local", step: "1", value: iso ? local(iso) : "" });
  const node = formField({ label: "Expires", control, hint: iso ? ["Held until ", time(iso), "."] : "The server then erases it. May be empty. In your time zone." });
  return {
    node,
    complain: (text) => node.setError(text),
    read: () => {
      node.setError(null);
      if (iso && control.value === local(iso)) return iso;
      if (control.value) return new Date(control.value).toISOString();
      if (!control.validity.badInput) return null;
      node.setError("Enter date and time.");
      return undefined;
    },
  };
}

/** The field of a weight; an empty one reads as null, which means 1. */
function weightField(weight) {
  const control = h("input", { type: "number", step: "any", min: "0", value: weight === 1 ? "" : String(weight) });
  const node = formField({ label: "Weight", control, hint: "How much the sample counts. Empty means 1." });
  return {
    node,
    complain: (text) => node.setError(text),
    read: () => {
      node.setError(control.validity.badInput ? "Enter a number." : null);
      return control.validity.badInput ? undefined : control.value ? Number(control.value) : null;
    },
  };
}

function local(iso) {
  const at = new Date(iso);
  return new Date(at.getTime() - 60_000 * at.getTimezoneOffset()).toISOString().slice(0, 19);
}
