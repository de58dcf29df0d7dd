/** Controls: a field with its label, and a button that is busy while it works. */

import { explain, isAbort } from "../lib/api.js";
import { h, uid } from "../lib/dom.js";
import { toast } from "./toast.js";

/** Put a label, a hint and an error around a control. The node has `setError(text)`; a warning refuses nothing. */
export function formField({ label, hint = null, error = null, control, beside = null }) {
  control.id ||= uid("control");
  const wrong = h("span", { class: "field-error", id: uid("error"), hidden: true });
  const help = hint && h("span", { class: "field-hint", id: uid("hint") }, hint);
  const field = h("div", { class: "field" }, h("div", { class: "field-label" }, h("label", { htmlFor: control.id }, label), beside), control, help, wrong);
  field.setError = (text, { isWarning = false } = {}) => {
    wrong.hidden = !text;
    wrong.textContent = text ?? "";
    wrong.classList.toggle("field-warning", isWarning);
    control.setAttribute("aria-invalid", String(Boolean(text) && !isWarning));
    const described = [help?.id, text && wrong.id].filter(Boolean).join(" ");
    if (described) control.setAttribute("aria-describedby", described);
    else control.removeAttribute("aria-describedby");
  };
  field.setError(error);
  return field;
}

/** Make a button. Kinds: `primary`, `danger` and `plain`. An error of an async `onclick` is shown as a toast. */
export function button(label, { onclick = () => {}, kind = "", type = "button", ...attributes } = {}) {
  const node = h("button", { class: `button ${kind && `button-${kind}`}`, type, ...attributes }, label);
  node.addEventListener("click", (event) => busy(node, () => onclick(event)));
  return node;
}

/** Keep a button busy until some work has ended. */
export async function busy(node, work) {
  if (node.getAttribute("aria-busy") === "true") return;
  const result = work();
  if (!(result instanceof Promise)) return;
  node.setAttribute("aria-busy", "true");
  try {
    await result;
  } catch (error) {
    if (!isAbort(error)) toast(explain(error), { kind: "failed" });
  } finally {
    node.removeAttribute("aria-busy");
  }
}
