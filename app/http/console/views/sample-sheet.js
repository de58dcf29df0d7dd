/** A sample, and the actions on it and on its person. */

import { button } from "../elements/field.js";
import { sheet } from "../elements/dialog.js";
import { state } from "../elements/state.js";
import { definitions } from "../elements/table.js";
import { quoted, time } from "../elements/text.js";
import { api, explain, isAbort } from "../lib/api.js";
import { mayChange } from "../lib/cluster.js";
import { h, replace } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { session } from "../lib/session.js";
import { erase, exportSubject, restrict } from "./sample-actions.js";
import { rectify } from "./sample-forms.js";

/** Show the current values of a sample. */
export function openSample(id, { onChange = () => {} } = {}) {
  const body = h("div", { class: "stack" }, state("loading", "Reading the sample"));
  const dialog = sheet({ title: "Sample", body });
  const changed = (outcome) => {
    onChange();
    return outcome ? replace(body, outcome) : read();
  };
  async function read() {
    try {
      const { samples } = await api.post("/samples/search", { ids: [id] }, { signal: dialog.signal });
      replace(body, content(samples[0], dialog.signal, changed));
    } catch (error) {
      if (isAbort(error)) return;
      const text = error.slug === "not-held" ? "No sample is held under this id any more." : explain(error);
      replace(body, state(error.slug === "not-held" ? "empty" : "error", text));
    }
  }
  read();
  return dialog;
}

function content(sample, signal, changed) {
  const features = Object.entries(sample.features).map(([name, value]) => [quoted(name), value === null ? h("span", { class: "muted" }, "missing") : quoted(String(value))]);
  const person = sample.subject !== null && [
    session.can("read") && button("Export what is held about the person", { onclick: () => exportSubject(sample.subject) }),
    mayChange("erase") && button(sample.restricted_at ? "Release the person" : "Restrict the person", { onclick: () => restrict(sample.subject, { release: Boolean(sample.restricted_at), onDone: () => changed() }) }),
    mayChange("erase") && button("Forget the person", { kind: "danger", onclick: () => erase({ subjects: [sample.subject] }, { onDone: changed, signal }) }),
  ];
  return [
    definitions([
      ["Id", quoted(sample.id)],
      ["Subject", sample.subject === null ? h("span", { class: "muted" }, "none") : quoted(sample.subject)],
      ["Label", quoted(String(sample.label))],
      sample.expires_at && ["Expires", time(sample.expires_at)],
      sample.weight !== 1 && ["Weight", number(sample.weight)],
      sample.restricted_at && ["Restricted since", time(sample.restricted_at)],
    ]),
    h("details", { open: true }, h("summary", {}, "Features"), definitions(features)),
    h("div", { class: "row" },
      mayChange("write") && button("Rectify", { onclick: () => rectify(sample, { onDone: changed, signal }) }),
      mayChange("erase") && button("Forget this sample", { kind: "danger", onclick: () => erase({ ids: [sample.id] }, { onDone: changed, signal }) })),
    person && h("div", { class: "row" }, person),
  ];
}
