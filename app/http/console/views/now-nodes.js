/** The nodes of the cluster: who leads, who is behind, and whether all models are the same. */

import { table } from "../elements/table.js";
import { quoted } from "../elements/text.js";
import { cluster } from "../lib/cluster.js";
import { h, replace } from "../lib/dom.js";
import { capital, duration, number } from "../lib/format.js";

const STATES = { "in-step": "In step", behind: "Behind" };

/** Show the nodes in the body of a section until a signal is aborted; a single server hides the section. */
export function showNodes(body, signal) {
  const summary = h("p", { role: "status" });
  const place = h("div");
  let shown = "";
  replace(body, summary, place);
  const show = () => {
    const { answer } = cluster;
    body.parentElement.hidden = answer === null;
    if (answer === null) return;
    const text = summaryOf(answer);
    if (summary.textContent !== text) summary.textContent = text; // screen readers announce new text
    const drawn = tableOf(answer);
    if (drawn.textContent === shown) return;
    shown = drawn.textContent;
    const hadFocus = place.contains(document.activeElement);
    replace(place, drawn);
    if (hadFocus) drawn.focus({ preventScroll: true });
  };
  cluster.addEventListener("nodes", show, { signal });
  show();
}

function summaryOf({ nodes, leader, epoch }) {
  const away = nodes.filter(({ state }) => state === "silent" || state === "expelled").length;
  const differ = nodes.filter(({ digests_equal: equal }) => equal === false).length;
  return [
    `${number(nodes.length)} nodes, epoch ${number(epoch)}.`,
    leader ? "" : "No node leads: changes are refused until one leads.",
    away ? `Not answering: ${number(away)}.` : "",
    differ ? `Models that differ from the leader's: ${number(differ)}. They answer no predictions.` : "",
  ].filter(Boolean).join(" ");
}

function tableOf({ node, nodes }) {
  return table({
    caption: "Nodes of the cluster", rows: nodes,
    columns: [
      { label: "Node", cell: ({ name }) => (name === node ? [quoted(name), h("span", { class: "muted" }, " (this one)")] : quoted(name)) },
      { label: "Role", cell: ({ role }) => capital(role) },
      { label: "State", cell: stateOf },
      { label: "Version", numeric: true, cell: ({ model_version: version }) => numberOr(version) },
      { label: "Behind by", numeric: true, cell: ({ role, lag_versions: lag }) => (role === "leader" || !known(lag) ? "–" : `${number(lag)} ${lag === 1 ? "version" : "versions"}`) },
      { label: "Model", cell: digestsOf },
    ],
  });
}

function stateOf({ state, seen_seconds_ago: seconds }) {
  if (STATES[state]) return STATES[state];
  const since = state === "silent" && known(seconds) ? ` for ${duration(Math.max(1, Math.round(seconds)))}` : "";
  return h("span", { class: "bad" }, capital(state), since);
}

function digestsOf({ role, digests_equal: equal }) {
  if (equal === false) return h("strong", { class: "bad" }, "Differs: answers nothing");
  if (equal) return h("span", { class: "good" }, "The same");
  return h("span", { class: "muted" }, role === "leader" ? "–" : "Not compared yet");
}

const known = (value) => value !== null && value !== undefined;
const numberOr = (value) => (known(value) ? number(value) : "–");
