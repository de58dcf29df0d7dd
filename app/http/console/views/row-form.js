/** A form for the model's columns: numbers with their ranges, categories with completion, and missing values. */

import { formField } from "../elements/field.js";
import { quoted } from "../elements/text.js";
import { api } from "../lib/api.js";
import { h, uid } from "../lib/dom.js";
import { number, precise } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";

const STEPS = 100; // of a slider
// Units of dates and times, which may be sent as text.
const MOMENTS = ["days", "seconds", "seconds of the day", "day of the week", "day of the year"];
const MOMENT = /^(\d{4}-\d{2}-\d{2}([T ].*)?|\d{2}:\d{2}.*)$/;

/** Read the columns with their ranges; without the scope `read` only names and types are known. */
export async function readColumns(signal) {
  if (!session.can("read")) return live.model.features.map((feature) => ({ ...feature, categories: [] }));
  return (await api.get("/model/columns", { signal })).columns;
}

/**
 * Make the form. It has `row()` (values in feature order, or null when one is wrong), `set(features)`, `warns()` (whether
 * a value is unlike those held), `know(columns)` (what is held now) and `explain(errors)`, which shows what a server says
 * of places and returns what has no place here.
 */
export function rowForm(columns, { onchange = () => {} } = {}) {
  const cells = columns.map((column) => cell(column, onchange));
  const node = h("div", { class: "row-form" }, cells.map((one) => one.node));
  return {
    node,
    row: () => {
      const values = cells.map((one) => one.read());
      return values.includes(undefined) ? null : values;
    },
    set: (features) => cells.forEach((one, i) => one.write(features[columns[i].name] ?? null)),
    warns: () => cells.some((one) => one.warning() !== null),
    know: (now) => cells.forEach((one, i) => one.know(now[i])),
    focusError: () => node.querySelector("[aria-invalid=true]")?.focus(),
    explain: (errors) => errors.filter((error) => {
      const found = cells[Number(/\/(\d+)$/.exec(error.pointer)?.[1] ?? -1)];
      found?.complain(error.detail);
      return !found;
    }),
  };
}

function cell(column, onchange) {
  const { control, extra, read } = KINDS[column.type](column);
  const missing = h("input", { type: "checkbox" });
  const field = formField({
    label: quoted(column.name), control, hint: hint(column),
    beside: h("label", { class: "row-missing small muted" }, missing, " missing"),
  });
  missing.setAttribute("aria-label", `${column.name} is missing`);
  if (extra) control.after(extra);
  let before = control.value; // what was there before it was marked as missing
  const show = () => {
    if (missing.checked) control.value = "";
    control.toggleAttribute("data-missing", missing.checked);
    if (control.localName === "input") control.placeholder = missing.checked ? "missing" : "";
    field.setError(warning(), { isWarning: true });
  };
  const warning = () => (missing.checked ? null : unlike(column, control.value));
  const changed = () => {
    before = control.value;
    missing.checked = false;
    show();
    onchange();
  };
  missing.addEventListener("change", () => {
    if (!missing.checked) control.value = before;
    show();
    onchange();
  });
  control.addEventListener("input", () => {
    if (extra && control.value !== "") extra.value = control.value;
    changed();
  });
  extra?.addEventListener("input", () => {
    control.value = String(Number(Number(extra.value).toPrecision(6)));
    changed();
  });
  return {
    node: field,
    warning,
    know: (now) => {
      column = now;
      show();
    },
    complain: (text) => field.setError(text),
    read: () => {
      if (missing.checked) return null;
      const value = read(control.value);
      if (value === undefined) field.setError(`Enter a number${isMoment(column) ? " or a date or time such as 2024-01-31" : ""}, or mark it as missing.`);
      return value;
    },
    write: (value) => {
      missing.checked = value === null;
      if (value !== null) before = control.value = String(value);
      if (extra && value !== null) extra.value = control.value;
      show();
    },
  };
}

const KINDS = {
  numeric: (column) => {
    const control = h("input", { inputmode: "decimal", autocomplete: "off", spellcheck: "false" });
    const hasRange = column.least !== null && column.least !== undefined && column.least < column.greatest;
    // The slider is for the pointer; keyboard users have the number itself.
    const extra = hasRange ? h("input", { type: "range", min: column.least, max: column.greatest, step: step(column), tabindex: "-1", "aria-hidden": "true" }) : null;
    return { control, extra, read: isMoment(column) ? (text) => (MOMENT.test(text.trim()) ? text.trim() : readNumber(text)) : readNumber };
  },
  categorical: (column) => {
    const list = uid("categories");
    const control = h("input", { list, autocomplete: "off", spellcheck: "false", maxlength: "4096" });
    control.options = h("datalist", { id: list }, (column.categories ?? []).map((text) => h("option", { value: text })));
    queueMicrotask(() => control.after(control.options));
    return { control, extra: null, read: (text) => text };
  },
  boolean: () => {
    const control = h("select", {}, h("option", { value: "true" }, "true"), h("option", { value: "false" }, "false"));
    return { control, extra: null, read: (text) => text === "true" };
  },
};

function unitOf({ name }) {
  return live.model.features.find((feature) => feature.name === name)?.unit;
}

function isMoment(column) {
  return MOMENTS.includes(unitOf(column));
}

function step({ least, greatest }) {
  const isWhole = Number.isInteger(least) && Number.isInteger(greatest);
  return isWhole ? Math.max(1, Math.round((greatest - least) / 1000)) : (greatest - least) / STEPS;
}

function readNumber(text) {
  const value = Number(text.trim());
  return text.trim() === "" || !Number.isFinite(value) ? undefined : value;
}

/** Return how a value differs from those of all samples held; null if it does not, or if that is unknown. */
function unlike({ type, dtype, least, greatest, categories, n_categories: count }, text) {
  if (text === "") return null;
  if (type === "categorical") return count === categories.length && !categories.includes(text) ? "No sample held has this value." : null;
  if (typeof least !== "number") return null;
  const held = dtype === "float32" ? Math.fround : Number; // as the model reads it
  return held(text) < held(least) || held(text) > held(greatest) ? `Outside the range of the samples held: ${precise(least)} to ${precise(greatest)}.` : null;
}

function hint(column) {
  const missing = column.missing ? `, ${number(column.missing)} missing` : "";
  if (column.type === "numeric" && column.least !== null && column.least !== undefined) return `${number(column.least)} to ${number(column.greatest)}${unitOf(column) ? ` ${unitOf(column)}` : ""}${missing}`;
  if (column.n_categories !== undefined) return `${number(column.n_categories)} categories${missing}`;
  return null;
}

/** Make the field of a label, with `read()`: the value, or undefined if it is not valid. */
export function labelField() {
  const { label, classes } = live.model;
  const list = uid("classes");
  const control = h("input", { list, autocomplete: "off", spellcheck: "false", inputmode: ["integer", "number"].includes(label.type) ? "decimal" : null });
  const node = formField({ label: ["Label: ", quoted(label.name)], control, hint: `The value to learn: ${label.type}` });
  node.append(h("datalist", { id: list }, (classes ?? []).slice(0, 200).map((one) => h("option", { value: String(one) }))));
  control.addEventListener("input", () => node.setError(null));
  return {
    node,
    complain: (text) => node.setError(text),
    write: (value) => { control.value = String(value); },
    read: () => {
      const value = readLabel(control.value, label.type, classes ?? []);
      if (value === undefined) node.setError(`Enter a label: ${label.type}.`);
      return value;
    },
  };
}

function readLabel(text, type, classes) {
  const known = classes.find((one) => String(one) === text);
  if (known !== undefined) return known;
  if (type === "string" || type === "scalar") return text === "" ? undefined : text;
  if (type === "boolean") return { true: true, false: false }[text.trim().toLowerCase()];
  const value = readNumber(text);
  return type === "integer" && !Number.isSafeInteger(value) ? undefined : value;
}
