/** Banners of every view: changes have stopped, or expiry has paused, and what to do about it. */

import { api } from "../lib/api.js";
import { cluster, mayChange, webAddress } from "../lib/cluster.js";
import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { live } from "../lib/live.js";
import { button } from "./field.js";
import { quoted } from "./text.js";
import { toast } from "./toast.js";

const STOPPED = {
  "disk-failed": "A write to the disk or to the journal has failed. Check the disk, and PostgreSQL if it keeps the journal, then restart the server: only then it can tell what was written.",
  "model-unusable": "A change has failed inside the model. Restart the server: it is built again from its files.",
  "ledger-failed": "The ledger does not continue where the journal ends. Restart the server and read its log.",
  "log-rolled-back": "A witness has seen entries of the ledger that are not here: the data directory was restored from an older backup. Start with --ledger FILE, or with --accept-missing erasures.",
  "disk-full": "The disk is full. Make room: changes then resume by themselves.",
  "disk-errors": "The disk cannot be read or written. Check it: changes resume by themselves when it works.",
  "no-descriptors": "The process may not open more files. Raise the limit, or close connections: changes then resume by themselves.",
  "journal-unreachable": "PostgreSQL, which keeps the journal, cannot be reached. Check it and the network: changes then resume by themselves.",
};

export function banners() {
  const { changes, expiry, erasures } = live.sections;
  const all = [];
  if (cluster.follows) all.push(following(cluster.answer.leader));
  else if (changes?.state === "stopped") {
    all.push(banner("No samples can be added or erased.", `${STOPPED[changes.reason] ?? "Read the server's log."} Predictions continue.`));
  }
  if (expiry?.paused) {
    const confirm = mayChange("admin") && button("Continue expiry", { onclick: resume });
    all.push(banner("No sample expires.", `Expiry has paused: ${expiry.paused}. Check the server's clock and the expiry times, then continue.`, confirm));
  }
  if (erasures?.overdue) {
    all.push(banner(`Overdue erasures: ${number(erasures.overdue)}.`, "Their deadline has passed, and files still hold the unlearned samples. A fit or another long job may delay them. If none is running, read the server's log."));
  }
  if (live.state === "offline") {
    all.push(banner("The server does not answer.", "The page may show old values. It tries again by itself."));
  }
  return all;
}

/** Say where changes go; names of nodes are shown as text. */
function following(leader) {
  const address = leader && webAddress(leader.url);
  const text = leader
    ? ["This node follows: it predicts and reads. Samples are added, erased and changed at the leader, ", quoted(leader.name), ...(address ? [": ", h("a", { href: address, rel: "noreferrer" }, address)] : []), "."]
    : "This node follows, and no node leads at the moment: nothing can be changed until one leads.";
  return h("div", { class: "banner banner-note", role: "status" }, h("strong", {}, "Changes go to the leader."), h("span", { class: "prose" }, text));
}

const banner = (title, text, act = null) => h("div", { class: "banner", role: "alert" }, h("strong", {}, title), h("span", { class: "prose" }, text), act);

async function resume() {
  await api.post("/expiry/confirm");
  await live.refresh();
  toast("Expiry continues.");
}
