/** A fit with other parameters or another kind: the form, the progress, and the scores. */

import { bars } from "../elements/chart.js";
import { confirm } from "../elements/dialog.js";
import { button, formField } from "../elements/field.js";
import { jobProgress } from "../elements/job.js";
import { toast } from "../elements/toast.js";
import { api, ApiError } from "../lib/api.js";
import { h, replace, uid } from "../lib/dom.js";
import { number, share } from "../lib/format.js";
import { live } from "../lib/live.js";

const NO_LIMIT = 2 ** 31 - 1;

/** Show the newest job of a kind that was started elsewhere or before; one that has ended only if `isKept`. */
export async function resume(view, kind, place, label, onEnd, isKept = true) {
  const { jobs } = await api.get("/jobs", { signal: view.signal });
  const job = jobs.filter((one) => one.kind === kind).at(-1);
  if (job && (isKept || job.status === "queued" || job.status === "running")) follow(job, place, label, onEnd);
}

/** Show a job until it has ended; `onEnd` gets it when it has succeeded. */
export function follow(job, place, label, onEnd) {
  replace(place, jobProgress(job, { label, onEnd: (ended) => ended.status === "succeeded" && onEnd(ended) }));
}

/** Text with code between backticks. */
export const withCode = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));

export class Fit {
  #view;
  #kinds;
  #fields = new Map();
  #form = h("div", { class: "model-form" });
  #progress = h("div", { class: "stack" });
  #kind;
  #score = h("input", { type: "checkbox", checked: true });

  constructor(view, body) {
    this.#view = view;
    this.#kind = h("select", { onchange: () => this.#draw() });
    const begin = button("Fit again", { kind: "primary", onclick: () => this.#begin() });
    replace(body, h("details", { class: "model-fit" }, h("summary", {}, "With other parameters, or as another kind"), h("div", { class: "stack" }, formField({ label: "Kind", control: this.#kind }), this.#form,
      h("label", { class: "row" }, this.#score, h("span", {}, "Measure the score of both models on samples that they have not learned (takes longer)")),
      h("div", {}, begin))), this.#progress);
    resume(view, "fit", this.#progress, "Fit", (job) => this.#tell(job)).catch(() => {});
  }

  /** Offer the kinds with their parameters; text that was already entered stays. */
  offer(kinds) {
    this.#kinds = kinds;
    if (Object.keys(this.#read()).length) return;
    replace(this.#kind, kinds.map(({ kind, guarantee, in_force: inForce }) =>
      h("option", { value: kind, selected: inForce }, `${kind} (${guarantee}${inForce ? ", current" : ""})`)));
    this.#draw();
  }

  get #chosen() {
    return this.#kinds.find(({ kind }) => kind === this.#kind.value);
  }

  #draw() {
    this.#fields.clear();
    replace(this.#form, this.#chosen.parameters.map((one) => {
      const field = fieldOf(one);
      this.#fields.set(one.name, field);
      return field.node;
    }));
  }

  /** Return the parameters that were changed. */
  #read() {
    return Object.fromEntries([...this.#fields].map(([name, { read }]) => [name, read()]).filter(([, value]) => value !== undefined));
  }

  async #begin() {
    for (const { node } of this.#fields.values()) node.setError(null);
    const parameters = this.#read();
    const names = Object.keys(parameters);
    const kind = this.#chosen.kind;
    const samples = number(live.model?.n_samples ?? 0);
    const body = [
      h("p", {}, `The server fits a ${kind} on all ${samples} samples held and then replaces the current model. Predictions and changes continue during the fit.`),
      h("p", {}, names.length ? ["Changed: ", names.map((name) => [h("code", {}, `${name} = ${JSON.stringify(parameters[name])}`), " "])] : "No parameter is changed."),
    ];
    if (!(await confirm({ title: "Fit the model again?", body, action: "Fit again" }))) return;
    try {
      const sent = { kind, parameters, score: this.#score.checked };
      const job = await api.post("/model/fit", sent, { signal: this.#view.signal, once: true });
      follow(job, this.#progress, `Fit of a ${kind}`, (ended) => {
        this.#fields.clear(); // the entered values are current now
        this.#tell(ended);
        toast("The new model is in use.");
        live.refresh();
      });
    } catch (error) {
      if (!(error instanceof ApiError) || !this.#showErrors(error.errors)) throw error;
    }
  }

  /** Show each error beside its field; return whether all have one. */
  #showErrors(errors) {
    const wrong = errors.map(({ pointer, detail }) => [this.#fields.get(pointer.replace("/parameters/", "")), detail]);
    if (!wrong.length || wrong.some(([field]) => !field)) return false;
    for (const [{ node }, detail] of wrong) node.setError(detail);
    wrong[0][0].node.querySelector("input, select").focus();
    return true;
  }

  #tell({ result }) {
    const { score } = result;
    const sides = score ? [["Before", score.before], ["After", score.after]].filter(([, side]) => side && side.value !== null) : [];
    const written = (value) => (score.metric === "accuracy" ? share(value) : value.toFixed(4));
    const items = sides.map(([name, side]) => ({
      label: `${name} (${side.method}, ${number(side.n_samples)} samples)`, value: Math.max(0, side.value), text: written(side.value), tone: name === "After" ? "accent" : null,
    }));
    this.#progress.append(
      h("p", { role: "status" }, `The model was fitted: version ${number(result.model_version)}.`),
      items.length ? h("div", { class: "stack" }, h("h3", {}, score.metric === "accuracy" ? "Accuracy" : "R²"), bars(items, { max: 1 }))
        : h("p", { class: "muted" }, "The scores were not measured."));
  }
}

/** Return the field of a parameter and a function that reads it: undefined if nothing was changed. */
function fieldOf(one) {
  const { name, text, types, choices, optional, value, least, greatest } = one;
  const word = one.none_word ?? "none";
  const isNumber = types.some((type) => type === "integer" || type === "number");
  const before = written(value, word);
  const words = [...(choices ?? []), ...(types.includes("boolean") ? ["true", "false"] : []), ...(optional ? [word] : [])];
  const isChoice = !isNumber && !types.includes("list") && words.length > 0;
  const list = words.length && !isChoice ? h("datalist", { id: uid("words") }, words.map((each) => h("option", { value: each }))) : null;
  const control = isChoice
    ? h("select", {}, words.map((each) => h("option", { value: each, selected: each === before }, each)))
    : h("input", { value: before, autocomplete: "off", spellcheck: "false", list: list?.id ?? null, inputmode: words.length ? null : "decimal" });
  const most = greatest < NO_LIMIT ? greatest : null; // null is less, too
  const range = most !== null ? ` From ${least} to ${most}.` : least !== null ? ` At least ${least}.` : "";
  const node = formField({ label: h("code", {}, name), control, hint: [withCode(text), range] });
  if (list) node.append(list);
  const read = () => {
    const now = control.value.trim();
    if (now === before) return undefined;
    if (optional && (now === word || now === "")) return null;
    if (words.includes(now) && !(now === "true" || now === "false")) return now;
    try {
      return JSON.parse(types.includes("list") && !now.startsWith("[") ? `[${now}]` : now);
    } catch {
      return now;
    }
  };
  return { node, read };
}

const written = (value, word) => (value === null ? word : Array.isArray(value) ? value.join(", ") : String(value));
