/** Short messages in a live region; a failure stays until it is closed. */

import { h } from "../lib/dom.js";

const SECONDS = 8;

export function toast(text, { kind = "done", action = null } = {}) {
  const close = () => note.remove();
  const act = action && h("button", { type: "button", onclick: () => { close(); action.onclick(); } }, action.label);
  const note = h("div", { class: `toast toast-${kind}` }, h("span", {}, text), act,
    h("button", { type: "button", "aria-label": "Close the message", onclick: close }, "✕"));
  // What is outside of an open dialog can neither be used nor heard.
  const places = document.querySelectorAll("dialog[open] > .toasts");
  (places[places.length - 1] ?? document.querySelector("body > .toasts")).append(note);
  if (kind === "done") setTimeout(() => note.matches(":hover, :focus-within") || close(), SECONDS * 1000);
  return note;
}
