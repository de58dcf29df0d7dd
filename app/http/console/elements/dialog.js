/** Dialogs: the browser keeps the focus inside, closes them with Escape, and gives the focus back. */

import { h, uid } from "../lib/dom.js";
import { button, formField } from "./field.js";

/** Open a dialog; it goes when it is closed, and its `signal` is aborted then. */
export function sheet({ title, body, foot = null, onclose = () => {} }) {
  const id = uid("dialog");
  const end = new AbortController();
  const close = button("Close", { onclick: () => dialog.close(), kind: "plain" });
  const dialog = h("dialog", { "aria-labelledby": id },
    h("div", { class: "stack" }, h("div", { class: "dialog-head" }, h("h2", { id }, title), close), body, foot && h("div", { class: "dialog-foot" }, foot)), h("div", { class: "toasts", role: "status" }));
  dialog.signal = end.signal;
  dialog.addEventListener("close", () => {
    document.querySelector("body > .toasts").append(...dialog.querySelector(".toasts").children); // a failure stays
    dialog.remove();
    end.abort(new DOMException("closed", "AbortError"));
    onclose(dialog.returnValue);
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Say what will happen, and ask; with `typed` this text has to be typed before. */
export function confirm({ title, body, action, danger = false, typed = null }) {
  return new Promise((resolve) => {
    const sure = button(action, { kind: danger ? "danger" : "primary", onclick: () => dialog.close("yes") });
    sure.classList.add("button-sure");
    const control = h("input", { autocomplete: "off", spellcheck: "false", oninput: () => { sure.disabled = control.value !== typed; } });
    sure.disabled = typed !== null;
    const field = typed !== null && formField({ label: ["Type ", h("code", {}, typed), " to continue"], control });
    const dialog = sheet({
      title, body: [body, field], foot: [button("Cancel", { onclick: () => dialog.close() }), sure],
      onclose: (value) => resolve(value === "yes"),
    });
  });
}
