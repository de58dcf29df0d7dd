/** What is shown in the place of something: nothing there, loading, refused, out of reach. */

import { h } from "../lib/dom.js";
import { button } from "./field.js";

/** Kinds: `empty`, `loading`, `error`, `offline` and `locked`. */
export function state(kind, text, { action = null } = {}) {
  const role = kind === "error" || kind === "offline" ? "alert" : "status";
  const act = action && button(action.label, { onclick: action.onclick });
  return h("div", { class: `state state-${kind}`, role }, h("span", {}, text), act);
}
