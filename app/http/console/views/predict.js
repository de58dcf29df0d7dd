/** A prediction, the samples behind it, and the prediction without a person. */

import { bars } from "../elements/chart.js";
import { button, formField } from "../elements/field.js";
import { resultOf } from "../elements/job.js";
import { state } from "../elements/state.js";
import { quoted } from "../elements/text.js";
import { api, ApiError, isAbort } from "../lib/api.js";
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
const WRONG = "A value is wrong: see the message at its field.";

export default class Predict extends View {
  static heading = "Predict";
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
    replace(this.originLine, sample ? ["This is the row of sample ", quoted(sample.id), "."] : session.can("read") ? "There is no sample to start with." : "Fill in the values that you know.");
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

  /** Drop answers and questions about another row. */
  #reset() {
    if (!this.why) return;
    this.#offerWhy();
    if (this.without.childElementCount === 0) this.#showWithout();
    else this.#offerWithout();
  }

  #offerWhy() {
    this.stop(this.why);
    const unfit = live.model.kind === "tree" && "This kind of model cannot say which samples are behind an answer.";
    replace(this.why, unfit ? state("empty", unfit) : h("div", { class: "row" }, button("Which samples are behind this answer?", { onclick: () => this.#askWhy() })));
  }

  #offerWithout() {
    if (!this.compared) return;
    this.stop(this.compared);
    replace(this.compared);
  }

  #ask() {
    const row = this.form.row();
    if (!row) {
      this.stop(this.answer);
      return replace(this.answer, state("empty", WRONG));
    }
    return this.show(this.answer, async (signal) => {
      try {
        const answer = await api.post("/predict", { instances: [row] }, { signal });
        if (this.form.warns() && answer.model_version !== this.version) this.form.know(await readColumns(signal));
        return answer;
      } catch (error) {
        const isPlaced = error.errors?.length > 0 && this.form.explain(error.errors).length === 0;
        throw isPlaced ? new ApiError(error.status, { detail: WRONG }) : error;
      }
    }, (answer) => {
      this.version = answer.model_version;
      return this.#answerOf(answer);
    });
  }

  #answerOf(answer) {
    const [label] = answer.predictions;
    const version = h("p", { class: "small muted" }, `Version ${number(answer.model_version)} of the model; updated when the model changes.`);
    return [h("p", { class: "muted" }, quoted(live.model.label.name)), h("p", { class: "predict-label" }, shownLabel(label)), answer.probabilities ? classBars(answer) : null, version];
  }

  #askWhy() {
    const row = this.form.row();
    if (!row) return this.form.focusError();
    const job = { label: "Ranking the samples", onCancel: () => this.#offerWhy() };
    return this.show(this.why, (signal) => this.#long("/influence", { instances: [row], top: TOP }, this.why, { ...job, signal }), (answer) => this.#reasons(answer));
  }

  /** Post a question, wait for its job if there is one, and return the answer. */
  async #long(path, body, place, job) {
    const answer = await api.post(path, body); // not aborted: the job that it begins would be unknown
    if (!answer.status) return answer;
    const { url } = await resultOf(answer, place, job);
    return api.get(url, { signal: job.signal });
  }

  #reasons({ helpful, harmful, note, model_version: version }) {
    const top = Math.max(0, ...[...helpful, ...harmful].map((one) => Math.abs(one.score)));
    const list = (title, text, items, tone) => h("div", { class: "stack" }, h("h3", {}, title), h("p", { class: "small muted" }, text),
      items.length ? bars(items.map((one) => ({
        label: h("button", { class: "button button-plain", type: "button", onclick: () => openSample(one.id) }, quoted(one.id)),
        value: Math.abs(one.score), text: number(Number(one.score.toPrecision(3))), tone,
      })), { max: top, label: title }) : state("empty", "None."));
    return [
      h("div", { class: "predict-reasons" },
        list("Samples that help this answer most", "Without one of them the model would be less sure of the answer.", helpful, "accent"),
        list("Samples that harm it most", "Without one of them the model would be surer of the answer.", harmful, "bad")),
      h("p", { class: "small muted prose" }, `Version ${number(version)} of the model; not updated when the model changes. `, note),
    ];
  }

  #showWithout() {
    if (live.model.guarantee !== "exact") {
      replace(this.without, state("empty", `Only an exact model can answer this. The guarantee of this model is ${live.model.guarantee}.`));
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
      this.#compare(whose.value, name.value, nameField);
    };
    const ask = h("button", { class: "button", type: "submit" }, "Predict without");
    replace(this.without, h("p", { class: "muted prose" }, "A copy of the model unlearns the samples and answers. The model itself does not change."),
      h("form", { class: "predict-whose", onsubmit }, formField({ label: "Without", control: whose }), nameField, ask), this.compared);
  }

  #compare(kind, name, field) {
    if (!name) return field.setError("Enter an id or a subject.");
    field.setError(null);
    const row = this.form.row();
    if (!row) return this.form.focusError();
    const job = { label: "Unlearning a copy", onCancel: () => this.#offerWithout() };
    return this.show(this.compared, (signal) => this.#long("/predict/without", { instances: [row], [kind]: [name] }, this.compared, { ...job, signal }), comparison);
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

function comparison({ with: before, without: after, removed, absent, n_samples: left, model_version: version }) {
  if (removed === 0) return state("empty", absent ? "The model has learned no sample under this name." : "Nothing was left out.");
  const samples = removed === 1 ? "1 sample" : `${number(removed)} samples`;
  if (after === null) return state("empty", `Without ${samples} no sample is left to learn from.`);
  const isSame = before.predictions[0] === after.predictions[0];
  const side = (title, one) => h("div", { class: "stack" }, h("h3", {}, title), h("p", { class: "predict-label" }, shownLabel(one.predictions[0])), one.probabilities ? classBars(one) : null);
  return [
    h("p", {}, isSame ? "The answer stays the same " : "The answer changes ", `without ${samples}; ${number(left)} are left. `, h("span", { class: "small muted" }, `Version ${number(version)} of the model.`)),
    h("div", { class: "predict-reasons" }, side("With", before), side("Without", after)),
  ];
}

customElements.define("view-predict", Predict);
