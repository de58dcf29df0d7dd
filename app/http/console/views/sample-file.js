/** Samples from a CSV file: sent in parts, each of which the model learns as a whole or not at all. */

import { button, formField } from "../elements/field.js";
import { state } from "../elements/state.js";
import { quoted } from "../elements/text.js";
import { api, ApiError, explain, isAbort } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { number, share } from "../lib/format.js";
import { live } from "../lib/live.js";

const ROWS = 5000; // of a part
const MOST_BYTES = 4e6;

/** The form that takes a file. */
export function fileForm({ onDone, signal }) {
  const control = h("input", { type: "file", accept: ".csv,text/csv" });
  const outcome = h("div", { class: "stack", role: "status" });
  const { features, label } = live.model;
  const columns = [...features.map((feature) => feature.name), label.name].flatMap((name) => [quoted(name), ", "]).slice(0, -1);
  const field = formField({ label: "CSV file", control, hint: "In UTF-8, with a header. The page sends it in parts of some thousand rows. The model learns each part as a whole or not at all." });
  const start = button("Add the samples", { kind: "primary", onclick: async () => {
    const [file] = control.files;
    field.setError(file ? null : "Choose a file.");
    if (file) await send(file, outcome, { onDone, signal });
  } });
  return h("div", { class: "stack" }, field,
    h("details", {}, h("summary", {}, "Columns of the file"), h("p", { class: "prose" }, columns, ". There may also be ", h("code", {}, "id"), ", ", h("code", {}, "subject"), ", ", h("code", {}, "expires_at"), ", ", h("code", {}, "weight"), " and ", h("code", {}, "readd"), ". An empty field is a missing value.")),
    h("div", { class: "row" }, start), outcome);
}

async function send(file, outcome, { onDone, signal }) {
  const stop = new AbortController();
  const bar = h("progress", { max: "1", value: 0, "aria-label": "Adding samples" });
  const words = h("p", { class: "small muted" });
  const head = h("div", { class: "row" }, words, button("Stop after this part", { onclick: () => stop.abort() }));
  replace(outcome, bar, head);
  let [rows, bytes, part] = [0, 0, null];
  try {
    for await (part of parts(file)) {
      if (stop.signal.aborted) break;
      await api.raw("POST", "/samples", { body: part.body, headers: { "Content-Type": "text/csv" }, signal });
      rows += part.rows;
      bytes += part.bytes;
      bar.value = bytes / file.size;
      words.textContent = `${number(rows)} rows, ${share(Math.min(1, bytes / file.size))}`;
    }
    replace(outcome, h("p", {}, stop.signal.aborted ? `Stopped: ${number(rows)} rows were added.` : rows ? `${number(rows)} rows were added.` : "The file has no rows."));
  } catch (error) {
    if (isAbort(error)) return;
    replace(outcome, state("error", [`${number(rows)} rows were added. `, reason(error, rows, part)]));
  }
  if (rows) onDone();
}

function reason(error, rows, part) {
  if (error instanceof TypeError) return "The rest is not text in UTF-8: save the file as CSV in UTF-8.";
  if (!(error instanceof ApiError)) return `The server did not answer, so it is unknown whether the next ${number(part.rows)} rows were added. You can send rows with an id again: they are not added twice.`;
  const { pointer, detail } = error.errors[0] ?? { pointer: "", detail: "" };
  const unknown = /^column (\d+) /.exec(detail)?.[1]; // the server repeats no name that it does not know
  if (unknown) return ["The model has no column ", quoted(fieldsOf(part.header)[unknown - 1]), `, which is column ${unknown} of the file: rename it, or leave it out.`];
  const [, row, feature] = /^\/samples\/(\d+)(?:\/features\/(.+))?/.exec(pointer) ?? [];
  if (row === undefined) return `Then: ${explain(error)}`;
  const column = feature && [" in column ", quoted(feature.replaceAll("~1", "/").replaceAll("~0", "~"))];
  return [`Then row ${number(rows + Number(row) + 1)} was refused`, column, `: ${detail}. Nothing of its part was added.`];
}

/** Return the fields of a record. */
const fieldsOf = (record) => [...record.trimEnd().matchAll(/(?<=^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, inner, plain]) => inner?.replaceAll('""', '"') ?? plain);

/** Split a file into parts, each with the header; a line break within quotes does not end a row. */
async function* parts(file) {
  let [header, held, size] = [null, [], 0];
  const made = () => {
    const body = new Blob([header, ...held]);
    const part = { header, body, rows: held.length, bytes: size };
    [held, size] = [[], 0];
    return part;
  };
  for await (const record of records(file)) {
    if (record.trim() === "") continue;
    if (header === null) header = record.endsWith("\n") ? record : `${record}\n`;
    else held.push(record);
    size += record.length;
    if (held.length === ROWS || size > MOST_BYTES) yield made();
  }
  if (held.length) yield made();
}

async function* records(file) {
  const reader = file.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
  let [record, isQuoted] = ["", false];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const line of value.split(/(?<=\n)/)) {
      record += line;
      if (line.split('"').length % 2 === 0) isQuoted = !isQuoted;
      if (isQuoted || !line.endsWith("\n")) continue;
      yield record;
      record = "";
    }
  }
  if (record) yield record;
}
