/** The key: asked for where the server wants one, and forgotten with the page. */

import { h } from "../lib/dom.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { formField } from "./field.js";

const THEMES = ["light", "dark"];

/** Ask for a key. */
export function gate() {
  const control = h("input", { type: "password", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const error = session.key ? "The server does not know this key, or its time is over." : null;
  const field = formField({
    label: "Key", control, error,
    hint: "It stays in the memory of this page, is sent to this server only, and is gone when the page is closed.",
  });
  const onsubmit = (event) => {
    event.preventDefault();
    session.use(control.value.trim());
    live.forget();
  };
  queueMicrotask(() => control.focus());
  return h("form", { class: "gate", onsubmit }, h("h1", {}, "A key is needed"),
    h("p", { class: "muted" }, "This server asks for a key. What the key may not do is not shown. ", h("code", {}, "oubli keys create"), " makes one."),
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
  session.lock();
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
