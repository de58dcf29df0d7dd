/** The key: asked for if the server needs one, and forgotten with the page. */

import { h } from "../lib/dom.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { formField } from "./field.js";

const THEMES = ["light", "dark"];

const REFUSED = {
  unknown: "The server does not know this key, or it has expired.",
  ended: "The key was revoked, or it has expired. The page has closed its streams and no longer sends this key. Enter another one.",
};

/** Ask for a key. */
export function gate() {
  const control = h("input", { type: "password", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const error = REFUSED[session.refused] ?? null;
  const field = formField({
    label: "Key", control, error,
    hint: "The page keeps it in memory and sends it to this server only. It is gone when you close the page.",
  });
  const onsubmit = (event) => {
    event.preventDefault();
    session.use(control.value.trim());
    live.forget();
  };
  queueMicrotask(() => control.focus());
  return h("form", { class: "gate", onsubmit }, h("h1", {}, "A key is needed"),
    h("p", { class: "muted" }, "This server needs a key. The page hides what the key may not do. ", h("code", {}, "oubli keys create"), " makes a key."),
    field, h("div", {}, h("button", { class: "button button-primary", type: "submit" }, "Use the key")));
}

/** The small controls at the foot of the rail. */
export function tools() {
  const forget = h("button", { type: "button", onclick: forgetKey }, "Forget the key");
  const scopes = session.scopes.size && session.key ? h("span", { class: "small muted" }, session.name ? `Key: ${session.name}` : "With a key") : null;
  return [scopes, session.key && session.scopes.size ? forget : null, themeSwitch(), h("a", { class: "small", href: "docs" }, "API")];
}

function forgetKey() {
  session.use("");
  session.lock("");
  live.forget();
}

function themeSwitch() {
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const node = h("button", { type: "button", "aria-pressed": String(isDark()), onclick: () => {
    document.documentElement.dataset.theme = THEMES[isDark() ? 0 : 1];
    node.setAttribute("aria-pressed", String(isDark()));
    dispatchEvent(new Event("themechange"));
  } }, "Dark");
  return node;
}
