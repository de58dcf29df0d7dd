/** Samples, and the people that they are about. */

import { button, formField } from "../elements/field.js";
import { table } from "../elements/table.js";
import { quoted, time } from "../elements/text.js";
import { api } from "../lib/api.js";
import { mayChange } from "../lib/cluster.js";
import { h, replace } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { readColumns } from "./row-form.js";
import { erase, exportSubject, restrict } from "./sample-actions.js";
import { fileForm } from "./sample-file.js";
import { additionForm } from "./sample-forms.js";
import { openSample } from "./sample-sheet.js";

const PAGE = 25;
const FEATURES = 3; // feature columns of the table

export default class Samples extends View {
  static heading = "Samples and people";

  async enter(hint) {
    if (session.can("read", "erase")) this.#addSearch();
    if (session.can("read")) {
      this.found = this.section("Held");
      this.total = h("span");
      this.on("model", () => this.#showTotal());
      this.#showTotal();
      this.#browse();
    }
    if (mayChange("write")) await this.#addForms();
    if (hint.id && session.can("read")) openSample(hint.id, { onChange: () => this.#again() });
    if (hint.subject) {
      this.kind.value = "subject";
      this.name.value = hint.subject;
      this.#find();
    }
  }

  #addSearch() {
    this.kind = h("select", {}, h("option", { value: "subject" }, "Person (subject)"), h("option", { value: "id" }, "Sample (id)"));
    this.name = h("input", { type: "search", autocomplete: "off", spellcheck: "false", maxlength: "256" });
    this.field = formField({ label: "Subject or id", control: this.name });
    this.outcome = h("div", { class: "stack" });
    const ofPerson = [
      session.can("read") && button("Export", { onclick: () => this.#named((name) => exportSubject(name)) }),
      mayChange("erase") && button("Restrict", { onclick: () => this.#named((name) => restrict(name, { onDone: () => this.#again() })) }),
      mayChange("erase") && button("Release", { onclick: () => this.#named((name) => restrict(name, { release: true, onDone: () => this.#again() })) }),
    ].filter(Boolean);
    const forget = mayChange("erase") && button("Forget", { kind: "danger", onclick: () => this.#named((name) => this.#forget(name)) });
    const showKind = () => ofPerson.forEach((one) => { one.hidden = this.kind.value === "id"; });
    this.kind.addEventListener("change", showKind);
    this.name.addEventListener("input", () => this.field.setError(null));
    const find = session.can("read") && h("button", { class: "button button-primary", type: "submit" }, "Find");
    const onsubmit = (event) => {
      event.preventDefault();
      if (session.can("read")) this.#named(() => this.#find());
    };
    this.section("Find").append(
      h("form", { class: "samples-search", role: "search", onsubmit }, formField({ label: "Find by", control: this.kind }), this.field, find),
      h("div", { class: "row" }, ofPerson, forget), this.outcome,
    );
  }

  #named(act) {
    if (this.name.value) return act(this.name.value);
    this.field.setError("Enter a subject or an id.");
    return this.name.focus();
  }

  #forget(name) {
    return erase(this.kind.value === "subject" ? { subjects: [name] } : { ids: [name] }, { signal: this.signal, onDone: (outcome) => {
      replace(this.outcome, outcome);
      this.#again();
    } });
  }

  /** Read the list again. */
  #again = () => (this.list ?? (() => {}))();

  #find() {
    const [kind, name] = [this.kind.value, this.name.value];
    const body = kind === "id" ? { ids: [name] } : { subject: name, limit: PAGE };
    const read = (cursor) => api.post("/samples/search", cursor ? { ...body, cursor } : body, { signal: this.signal });
    this.#list(read, kind === "id" ? "No sample is held under this id." : "Nothing is held about this person.", [h("bdi", {}, kind === "id" ? "Sample with this id" : "Samples of this person"), button("Show all", { kind: "plain", onclick: () => this.#browse() })]);
  }

  #browse() {
    const read = (cursor) => api.get("/samples", { query: { limit: PAGE, cursor }, signal: this.signal });
    this.#list(read, mayChange("write") ? "No sample is held. Add one below." : "No sample is held.", [this.total]);
  }

  #showTotal() {
    this.total.textContent = `All ${number(live.model.n_samples + live.model.n_restricted)} samples`;
  }

  #list(read, nothing, title) {
    let pages = [];
    const load = async () => {
      pages = [await read(null)];
      return pages;
    };
    const render = () => {
      const next = pages.at(-1).next;
      const more = button("Show more", { onclick: async () => {
        pages.push(await read(next));
        replace(this.found, render());
      } });
      const samples = pages.flatMap((page) => page.samples);
      return [h("p", { class: "row muted" }, title), this.#table(samples), next ? h("div", { class: "row" }, more, h("span", { class: "muted" }, `${number(samples.length)} shown`)) : null];
    };
    this.list = () => this.show(this.found, load, render, { empty: () => (pages[0].samples.length ? null : nothing) });
    return this.list();
  }

  #table(samples) {
    const shown = live.model.features.slice(0, FEATURES);
    return table({
      caption: "Samples", rows: samples,
      onOpen: (sample) => openSample(sample.id, { onChange: () => this.#again() }),
      columns: [
        { label: "Id", cell: (sample) => quoted(sample.id) },
        { label: "Subject", cell: (sample) => (sample.subject === null ? h("span", { class: "muted" }, "none") : quoted(sample.subject)) },
        { label: quoted(live.model.label.name), cell: (sample) => quoted(String(sample.label)) },
        ...shown.map((feature) => ({
          label: quoted(feature.name), numeric: feature.type === "numeric",
          cell: (sample) => (sample.features[feature.name] === null ? h("span", { class: "muted" }, "missing") : quoted(String(sample.features[feature.name]))),
        })),
        { label: "State", cell: (sample) => (sample.restricted_at ? ["Restricted ", time(sample.restricted_at, { mode: "ago" })] : sample.expires_at ? ["Expires ", time(sample.expires_at)] : "Held") },
      ],
    });
  }

  async #addForms() {
    const body = this.section("Add");
    const onDone = () => this.#again();
    await this.show(body, readColumns, (columns) => [
      h("details", {}, h("summary", {}, "One sample"), additionForm(columns, { onDone })),
      h("details", {}, h("summary", {}, "A CSV file"), fileForm({ onDone, signal: this.signal })),
    ]);
  }
}

customElements.define("view-samples", Samples);
