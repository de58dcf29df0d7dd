/** The model: parameters, importances, trees, and for administrators actions on the whole model. */

import { bars } from "../elements/chart.js";
import { button, formField } from "../elements/field.js";
import { table } from "../elements/table.js";
import { quoted } from "../elements/text.js";
import "../elements/tree.js";
import { toast } from "../elements/toast.js";
import { api, explain } from "../lib/api.js";
import { mayChange } from "../lib/cluster.js";
import { h, replace } from "../lib/dom.js";
import { bytes, capital, number, share } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { View } from "../lib/view.js";
import { Fit, withCode } from "./model-fit.js";
import { addWork } from "./model-work.js";

const MOST_BARS = 12;
const MOST_CLASSES = 6;

export default class Model extends View {
  static heading = "Model";

  async enter() {
    const facts = this.section("Current model");
    const draw = (model) => replace(facts, factsOf(model));
    if (live.model) draw(live.model);
    this.on("model", draw);
    const reads = session.can("read");
    const tree = reads && this.section("Trees");
    const importances = reads && this.section("Importances");
    const parameters = this.section("Parameters");
    const admin = mayChange("admin");
    const [fit, work] = admin ? [this.section("Fit again"), this.section("Maintenance")] : [];
    const file = (reads || admin) && this.section("Snapshot");
    if (reads) {
      this.#importances(importances);
      this.#tree(tree);
    }
    if (file) addWork(this, work, file);
    await this.#parameters(parameters, fit);
  }

  /** Show the parameters, also after a fit has changed them, and the form of a fit. */
  async #parameters(table, body) {
    let [form, shown] = [null, null];
    const read = async () => {
      shown = inForce();
      const answer = await this.show(table, (signal) => api.get("/model/kinds", { signal }), ({ kinds }) => parametersOf(kinds.find((kind) => kind.in_force)));
      if (!answer || !body) return;
      form ??= new Fit(this, body);
      form.offer(answer.kinds);
    };
    const inForce = () => JSON.stringify([live.model?.kind, live.model?.parameters]);
    this.on("model", () => shown !== inForce() && read());
    await read();
  }

  #importances(body) {
    const note = h("p", { class: "small muted" });
    const plot = h("div", { class: "stack" });
    let version = null;
    const read = () => this.show(plot, (signal) => api.get("/model/importances", { signal }), (answer) => {
      version = answer.model_version;
      tell();
      return plotOf(answer);
    }, { empty: ({ features }) => (features.some(({ importance }) => importance > 0) ? null : "No tree has a split, so no column has an importance.") });
    const tell = () => tellAge(note, version, read);
    replace(body, plot, note);
    this.on("model", tell);
    read();
  }

  #tree(body) {
    const picture = document.createElement("model-tree");
    const place = h("div");
    const title = h("p", { class: "muted", role: "status" });
    const note = h("p", { class: "small muted" });
    const control = h("input", { type: "number", min: 1, value: 1, onchange: () => open(Math.round(Number(control.value))) });
    let version = null;
    const ask = (path, tree, signal, levels) => api.get(`/model/trees/${tree}`, { query: { node: path || null, levels }, signal });
    const open = (shown) => this.show(place, (signal) => ask("", Math.max(0, shown - 1), signal, 2), (answer) => {
      version = answer.model_version;
      control.max = answer.n_trees;
      control.value = answer.tree + 1;
      replace(title, `of ${number(answer.n_trees)}`, answer.iteration === null ? "" : `, iteration ${number(answer.iteration + 1)}`,
        answer.class === null ? "" : [", for the score of ", quoted(answer.class)]);
      picture.ask = async ({ path, text }) => {
        try {
          const below = await ask(path, answer.tree, this.signal, 1);
          if (below.node.text === text) return below;
        } catch (error) {
          if (error.slug !== "no-tree") return void toast(explain(error), { kind: "failed" });
        }
        toast("The model has changed: the tree is redrawn from its root.");
        return void open(answer.tree + 1);
      };
      picture.open(answer);
      tell();
      return picture;
    });
    const tell = () => tellAge(note, version, () => open(Number(control.value)));
    const step = (by) => button(by < 0 ? "Previous" : "Next", {
      onclick: () => open(Math.min(Number(control.max), Math.max(1, Number(control.value) + by))),
    });
    replace(body,
      h("div", { class: "row model-choose" }, formField({ label: "Tree", control }), title, step(-1), step(1)),
      h("p", { class: "small muted" }, "The width of a band is the number of its samples. Open a node with a click, or with the arrow keys."),
      place, note);
    this.on("model", tell);
    open(1);
  }
}

/** Show the version of something, and offer to read it again if there is a newer one. */
function tellAge(note, version, again) {
  const isOld = version !== null && live.model && live.model.model_version !== version;
  const told = `${version} ${isOld}`;
  if (note.dataset.told === told || version === null) return;
  note.dataset.told = told;
  replace(note, `Version ${number(version)}. `, isOld ? button("The model has changed: read it again", { kind: "plain", onclick: again }) : null);
}

function factsOf(model) {
  const facts = [
    ["Kind", model.kind],
    ["Task", model.task],
    ["Guarantee", model.guarantee],
    ["Disclosure", `${model.disclosure}: ${model.disclosure_limits}`],
    ["Version", number(model.model_version)],
    ["Samples", number(model.n_samples)],
    ["Columns", number(model.features.length)],
    ["Memory", bytes(model.memory_bytes)],
    ["Label", quoted(model.label.name)],
  ];
  if (model.classes) facts.push(["Classes", model.classes.length > MOST_CLASSES ? number(model.classes.length) : model.classes.map((name, place) => [place ? ", " : "", quoted(name)])]);
  if (model.understood) facts.push(...understoodOf(model.understood));
  if (model.mutations_since_scrub !== null) facts.push(["Changed since the last scrub", number(model.mutations_since_scrub)]);
  return h("dl", { class: "model-facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

const REMARKS = { id: "looks like an id", constant: "is the same in all rows", many: "has very many categories", leak: "may give the label away" };

/** What was understood of the data file: remarks are gone once a sample was erased. */
function understoodOf({ read, roles, remarks }) {
  const listed = (ones, text) => ones.map((one, place) => [place ? ", " : "", quoted(one.name), ` ${text(one)}`]);
  const facts = [["Data file", read.join(", ")]];
  if (roles.length) facts.push(["Not learned from", listed(roles, ({ role }) => `(${role})`)]);
  if (remarks?.length) facts.push(["Look odd", listed(remarks, ({ remark }) => REMARKS[remark] ?? remark)]);
  return facts;
}

function parametersOf({ parameters }) {
  const shown = (value, word) => (value === null ? word ?? "none" : Array.isArray(value) ? value.join(", ") : String(value));
  return table({
    caption: "Current parameters",
    rows: parameters,
    columns: [
      { label: "Name", cell: (one) => h("code", {}, one.name) },
      { label: "Value", numeric: true, cell: (one) => shown(one.value, one.none_word) },
      { label: "Default", numeric: true, cell: (one) => h("span", { class: "muted" }, shown(one.default, one.none_word)) },
      { label: "Meaning", wide: true, cell: (one) => withCode(one.text) },
    ],
  });
}

function plotOf({ features, measure }) {
  const ranked = [...features].sort((a, b) => b.importance - a.importance);
  const plot = h("div");
  const draw = (count) => replace(plot, bars(
    ranked.slice(0, count).map(({ name, importance }, place) => ({ label: quoted(name), value: importance, text: share(importance), tone: place < 3 ? "accent" : null })),
    { label: `Importances by ${measure}` }));
  draw(MOST_BARS);
  const rest = ranked.length - MOST_BARS;
  const all = rest > 0 && button(`Show ${number(rest)} more`, { kind: "plain", onclick: () => {
    draw(ranked.length);
    all.remove();
  } });
  return [h("p", { class: "small muted" }, `${capital(measure)}: the total gain of the splits on a column, as a share of all.`), plot, all];
}

customElements.define("view-model", Model);
