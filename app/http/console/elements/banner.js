/** What everybody has to know: changes are stopped, or expiry has paused; and what to do about it. */

import { api } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { button } from "./field.js";
import { toast } from "./toast.js";

const STOPPED = {
  "disk-failed": "A write to the disk has failed. Check the disk, then restart the server: only then it can tell what the disk holds.",
  "model-unusable": "A change has failed inside the model. Restart the server: it is built again from its files.",
  "ledger-failed": "The ledger does not go on where the journal does. Restart the server and read its log.",
  "log-rolled-back": "A witness has seen entries of the ledger that are not here: the data directory was restored from an older backup. Start with --ledger FILE, or with --accept-missing-erasures.",
  "disk-full": "The disk is full. Make room: changes go on by themselves then.",
  "disk-errors": "The disk cannot be read or written. Check it: changes go on by themselves when it works.",
  "no-descriptors": "The process may not open more files. Raise the limit, or close connections: changes go on by themselves then.",
};

export function banners() {
  const { changes, expiry } = live.sections;
  const all = [];
  if (changes?.state === "stopped") {
    all.push(banner("No samples can be added or erased.", `${STOPPED[changes.reason] ?? "Read the server's log."} Predictions go on.`));
  }
  if (expiry?.paused) {
    const confirm = session.can("admin") && button("Let expiry go on", { onclick: resume });
    all.push(banner("No sample expires.", `Expiry has paused: ${expiry.paused}. Check the server's clock and the expiry times, then let it go on.`, confirm));
  }
  if (live.state === "offline") {
    all.push(banner("The server does not answer.", "What is shown may be old. The page tries again by itself."));
  }
  return all;
}

const banner = (title, text, act = null) => h("div", { class: "banner", role: "alert" }, h("strong", {}, title), h("span", { class: "prose" }, text), act);

async function resume() {
  await api.post("/expiry/confirm");
  await live.refresh();
  toast("Expiry goes on.");
}
