/** An answer of the model, the samples that made it, and what it would be without somebody. */

import { bars } from "../elements/chart.js";
import { button, formField } from "../elements/field.js";
import { jobProgress } from "../elements/job.js";
import { state } from "../elements/state.js";
import { quoted } from "../elements/text.js";
import { api, explain, isAbort, OfflineError } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { number, precise, share } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { readColumns, rowForm } from "./row-form.js";
import { openSample } from "./sample-sheet.js";

const TYPING = 120; // milliseconds until the model is asked
const MOST_CLASSES = 12;
const TOP = 8;

export default class Predict extends View {
  static heading = "Predict";
  static styles = "predict.css";
  #timer = 0;
  #cursor = null;
  #origin = null; // the sample that the row began with

  async enter() {
    this.answer = h("div", { class: "predict-answer", "aria-live": "polite", "aria-atomic": "true" });
    this.row = h("div", { class: "stack" });
    this.querySelector("h1").after(h("div", { class: "predict-top" }, h("section", { class: "predict-row", "aria-label": "Row" }, this.row), h("section", { "aria-label": "Answer" }, this.answer)));
    if (session.can("read")) {
      this.why = this.section("Why");
      this.without = this.section("Without a person");
    }
    this.on("model", (model) => {
      if (this.form && model.model_version !== this.version) this.#later();
    });
    await this.show(this.row, (signal) => this.#load(signal), (loaded) => this.#render(loaded));
  }

  async #load(signal) {
    const columns = await readColumns(signal);
    const sample = session.can("read") ? await this.#nextSample(signal) : null;
    return { columns, sample };
  }

  /** A real row to begin with: the next of the samples held. */
  async #nextSample(signal) {
    try {
      const page = await api.get("/samples", { query: { limit: 1, cursor: this.#cursor }, signal });
      this.#cursor = page.next;
      return page.samples[0] ?? null;
    } catch (error) {
      if (this.#cursor === null || isAbort(error)) throw error;
      this.#cursor = null; // the list has another order since
      return this.#nextSample(signal);
    }
  }

  #render({ columns, sample }) {
    this.form = rowForm(columns, { onchange: () => this.#changed() });
    this.form.set(sample?.features ?? {});
    this.originLine = h("p", { class: "small muted" });
    this.#showOrigin(sample);
    const next = session.can("read") && button("Another row", { onclick: () => this.#takeNext() });
    queueMicrotask(() => this.#changed()); // as soon as the form is in the page
    return [h("div", { class: "row" }, next, this.originLine), this.form.node];
  }

  #showOrigin(sample) {
    this.#origin = sample;
    replace(this.originLine, sample ? ["The row is that of sample ", quoted(sample.id), "."] : session.can("read") ? "No sample is held to begin with." : "Fill in what is known.");
  }

  async #takeNext() {
    const sample = await this.#nextSample(this.signal);
    if (sample) this.form.set(sample.features);
    this.#showOrigin(sample);
    this.#changed();
    if (this.without) this.#showWithout();
  }

  #changed() {
    this.#reset();
    this.#later();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), TYPING);
  }

  /** Forget what was said about another row. */
  #reset() {
    if (!this.why) return;
    const unfit = live.model.kind === "tree" && "This kind of model cannot say which samples make an answer.";
    replace(this.why, unfit ? state("empty", unfit) : h("div", { class: "row" }, button("Which samples make this answer?", { onclick: () => this.#askWhy() })));
    if (this.without.childElementCount === 0) this.#showWithout();
    else if (this.compared) replace(this.compared);
  }

  async #ask() {
    const row = this.form.row();
    if (!row) return replace(this.answer, state("empty", "A value is not right: the field says which."));
    try {
      const answer = await api.post("/predict", { instances: [row] }, { signal: this.signal });
      this.version = answer.model_version;
      replace(this.answer, this.#answerOf(answer));
    } catch (error) {
      if (isAbort(error)) return undefined;
      const isOffline = error instanceof OfflineError;
      const rest = isOffline ? [] : this.form.explain(error.errors);
      const isPlaced = error.errors?.length > 0 && rest.length === 0;
      const text = isPlaced ? "A value is not right: the field says which." : explain(error);
      replace(this.answer, state(isOffline ? "offline" : "error", text, { action: { label: "Try again", onclick: () => this.#ask() } }));
      if (isOffline) this.onUp(() => this.#later());
    }
    return undefined;
  }

  #answerOf(answer) {
    const [label] = answer.predictions;
    const version = h("p", { class: "small muted" }, `Version ${number(answer.model_version)} of the model, asked anew when it changes.`);
    return [h("p", { class: "muted" }, quoted(live.model.label.name)), h("p", { class: "predict-label" }, shownLabel(label)), answer.probabilities ? classBars(answer) : null, version];
  }

  async #askWhy() {
    const body = { instances: [this.form.row()], top: TOP };
    if (!body.instances[0]) return this.form.focusError();
    const answer = await this.#long("/influence", body, this.why, "Ranking the samples", (result) => `/influence/${result.influence}`);
    if (answer) replace(this.why, this.#reasons(answer));
    return undefined;
  }

  /** Post something that is answered at once or by a job, and return the answer. */
  async #long(path, body, place, label, resultOf) {
    const answer = await api.post(path, body, { signal: this.signal });
    if (!answer.status) return answer;
    const ended = await new Promise((resolve) => replace(place, jobProgress(answer, { label, onEnd: resolve })));
    return ended.status === "succeeded" ? api.get(resultOf(ended.result), { signal: this.signal }) : null;
  }

  #reasons({ helpful, harmful, note }) {
    const top = Math.max(0, ...[...helpful, ...harmful].map((one) => Math.abs(one.score)));
    const list = (title, text, items, tone) => h("div", { class: "stack" }, h("h3", {}, title), h("p", { class: "small muted" }, text),
      items.length ? bars(items.map((one) => ({
        label: h("button", { class: "button button-plain", type: "button", onclick: () => openSample(one.id) }, quoted(one.id)),
        value: Math.abs(one.score), text: number(Number(one.score.toPrecision(3))), tone,
      })), { max: top, label: title }) : state("empty", "No sample does."));
    return [
      h("div", { class: "predict-reasons" },
        list("They help this answer most", "Without one of them the model would be less sure of it.", helpful, "accent"),
        list("They harm it most", "Without one of them the model would be surer of it.", harmful, "bad")),
      note && h("p", { class: "small muted prose" }, note),
    ];
  }

  #showWithout() {
    if (live.model.guarantee !== "exact") {
      replace(this.without, state("empty", `A ${live.model.guarantee} model cannot tell what it would say without somebody: only an exact one can.`));
      return;
    }
    const origin = this.#origin;
    const whose = h("select", {}, h("option", { value: "subjects" }, "Person (subject)"), h("option", { value: "ids" }, "Sample (id)"));
    whose.value = origin && !origin.subject ? "ids" : "subjects";
    const name = h("input", { autocomplete: "off", spellcheck: "false", maxlength: "256", value: origin ? origin.subject ?? origin.id : "" });
    const nameField = formField({ label: "Name", control: name });
    this.compared = h("div", { class: "stack", "aria-live": "polite" });
    const onsubmit = (event) => {
      event.preventDefault();
      ask.click();
    };
    const ask = button("What would it say without?", { onclick: () => this.#compare(whose.value, name.value, nameField) });
    replace(this.without, h("p", { class: "muted prose" }, "A copy of the model unlearns the samples and answers. The model itself stays as it is."),
      h("form", { class: "predict-whose", onsubmit }, formField({ label: "Without", control: whose }), nameField, ask), this.compared);
  }

  async #compare(kind, name, field) {
    if (!name) return field.setError("Enter an id or a subject.");
    field.setError(null);
    const row = this.form.row();
    if (!row) return this.form.focusError();
    const answer = await this.#long("/predict/without", { instances: [row], [kind]: [name] }, this.compared, "Unlearning a copy", (result) => `/predict/without/${result.without}`);
    if (answer) replace(this.compared, comparison(answer));
    return undefined;
  }
}

const shownLabel = (label) => (live.model.task === "regression" ? precise(label) : quoted(String(label)));

function classBars({ predictions, classes, probabilities }, tone = "accent") {
  const all = classes.map((label, i) => ({ label, value: probabilities[0][i] }));
  const shown = all.length > MOST_CLASSES ? all.toSorted((a, b) => b.value - a.value).slice(0, MOST_CLASSES) : all;
  const items = shown.map(({ label, value }) => ({ label: quoted(String(label)), value, text: share(value), tone: label === predictions[0] ? tone : null }));
  const rest = all.length - shown.length;
  return [bars(items, { max: 1, label: "Probabilities of the classes" }), rest ? h("p", { class: "small muted" }, `${number(rest)} more classes are less likely.`) : null];
}

function comparison({ with: before, without: after, removed, absent, n_samples: left }) {
  if (removed === 0) return state("empty", absent ? "The model has learned nothing under this name." : "Nothing was left out.");
  const samples = removed === 1 ? "1 sample" : `${number(removed)} samples`;
  if (after === null) return state("empty", `Without ${samples} none is left to learn from.`);
  const isSame = before.predictions[0] === after.predictions[0];
  const side = (title, one) => h("div", { class: "stack" }, h("h3", {}, title), h("p", { class: "predict-label" }, shownLabel(one.predictions[0])), one.probabilities ? classBars(one) : null);
  return [
    h("p", {}, isSame ? "The answer stays the same " : "The answer would be another ", `without ${samples}; ${number(left)} are left.`),
    h("div", { class: "predict-reasons" }, side("With", before), side("Without", after)),
  ];
}

customElements.define("view-predict", Predict);
