/** The frame of the page: views, the key, light and dark mode, and banners. */

import { explain, isAbort, OfflineError } from "./lib/api.js";
import { cluster } from "./lib/cluster.js";
import { h, replace } from "./lib/dom.js";
import { live } from "./lib/live.js";
import { session } from "./lib/session.js";
import { takeHint } from "./lib/view.js";
import { banners } from "./elements/banner.js";
import { gate, tools } from "./elements/access.js";
import { state } from "./elements/state.js";
import Erasures from "./views/erasures.js";
import Ledger from "./views/ledger.js";
import Model from "./views/model.js";
import Now from "./views/now.js";
import Predict from "./views/predict.js";
import Samples from "./views/samples.js";

/** The views. A key needs one of the scopes; without scopes any key is enough. */
const VIEWS = [
  { name: "now", title: "Now", scopes: [], Element: Now },
  { name: "predict", title: "Predict", scopes: ["predict"], Element: Predict },
  { name: "samples", title: "Samples and people", scopes: ["read", "write", "erase"], Element: Samples },
  { name: "erasures", title: "Erasures", scopes: ["erase", "read"], Element: Erasures },
  { name: "model", title: "Model", scopes: [], Element: Model },
  { name: "ledger", title: "Ledger and access", scopes: [], Element: Ledger },
];

const STATES = {
  connecting: "Connecting",
  live: "Live",
  polling: "Every 5 seconds",
  starting: "The server is starting",
  reconnecting: "Reconnecting",
  offline: "The server does not answer",
  locked: "A key is needed",
};

const place = document.querySelector(".shell-view");
const shown = { name: null, access: null };

const allowed = () => VIEWS.filter((view) => session.can(...view.scopes));

function wanted() {
  const views = allowed();
  return views.find((view) => `#${view.name}` === location.hash) ?? views[0];
}

function showNavigation() {
  const current = wanted()?.name;
  const links = allowed().map((view) => h("li", {}, h("a", { href: `#${view.name}`, "aria-current": view.name === current ? "page" : null }, view.title)));
  replace(document.querySelector(".shell-views"), h("ul", {}, links));
}

/** Close the dialogs of the view that is left. */
const closeDialogs = () => document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());

async function showView({ isMove = true } = {}) {
  const view = wanted();
  if (!view) return;
  closeDialogs();
  showNavigation();
  Object.assign(shown, { name: view.name, access: access() });
  document.title = `${view.title} · Oubli`;
  try {
    const node = new view.Element();
    replace(place, node);
    if (isMove) node.querySelector("h1").focus({ preventScroll: true });
    scrollTo(0, 0);
    await node.enter(takeHint(view.name));
  } catch (error) {
    if (isAbort(error)) return;
    const again = { label: "Try again", onclick: () => showView() };
    replace(place, h("h1", {}, view.title), state("error", `The view cannot be shown. ${explain(error)}`, { action: again }));
    if (!(error instanceof OfflineError)) throw error;
    shown.name = null; // until it is shown, here or because the access has changed
    live.onUp(() => shown.name === null && session.scopes.size && showView({ isMove: false }));
  }
}

const access = () => [...session.scopes].sort().join(" ") + session.key + cluster.follows;

function showAccess() {
  if (shown.name !== null && shown.access === access()) return;
  replace(document.querySelector(".shell-tools"), tools());
  if (session.scopes.size === 0) {
    Object.assign(shown, { name: null, access: null });
    closeDialogs();
    replace(document.querySelector(".shell-views"));
    replace(document.querySelector(".shell-banners"));
    replace(place, gate());
  } else {
    showView({ isMove: false });
  }
}

/** Show the banners. Unchanged ones stay, so screen readers do not repeat them and they keep the focus. */
function showBanners() {
  const [node, all] = [document.querySelector(".shell-banners"), banners()];
  if (node.textContent !== all.map((one) => one.textContent).join("")) replace(node, all);
}

function showState(name) {
  const node = document.querySelector(".shell-state");
  node.dataset.state = name;
  node.textContent = STATES[name];
  if (live.model === null && !["live", "polling", "locked"].includes(name)) {
    const isWaiting = name !== "offline";
    const text = { starting: "The server is starting: it trains or reads its model. The page continues by itself.", offline: "The server does not answer. The page tries again by itself." }[name];
    if (text) replace(place, h("h1", {}, "Oubli"), state(isWaiting ? "loading" : "offline", text));
  }
}

live.addEventListener("state", (event) => showState(event.detail));
session.addEventListener("change", showAccess);
for (const type of ["changes", "expiry", "erasures", "state"]) live.addEventListener(type, showBanners);
cluster.addEventListener("change", () => {
  showBanners();
  if (session.scopes.size) showAccess(); // the allowed actions have changed
});
addEventListener("hashchange", () => showView());
document.querySelector(".shell-skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address keeps the name of the view
  document.getElementById("main").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
replace(document.querySelector(".shell-tools"), tools());
cluster.start();
live.start();
