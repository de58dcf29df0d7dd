/** Actions on the whole model: verify, scrub, snapshot, download and restore. */

import { confirm } from "../elements/dialog.js";
import { button, formField } from "../elements/field.js";
import { definitions } from "../elements/table.js";
import { digest, time } from "../elements/text.js";
import { toast } from "../elements/toast.js";
import { api } from "../lib/api.js";
import { mayChange } from "../lib/cluster.js";
import { h, replace } from "../lib/dom.js";
import { download, save, upload } from "../lib/files.js";
import { bytes, number, share } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { follow, resume } from "./model-fit.js";

const CHECKED = {
  verified: "The file's trees are the same as those of a fresh fit.",
  checked: "The file passed all checks except the comparison with a fresh fit. Verify the model for that.",
  "grown-anew": "The trees were rebuilt from the file's samples.",
};

/** Fill the section of jobs, if there is one, and that of the snapshot. */
export function addWork(view, jobs, file) {
  if (jobs) {
    replace(jobs,
      work(view, "verify", "Verify", "Train a fresh model on the samples held and compare the two.", (result) => verified(view, result)),
      work(view, "scrub", "Scrub", "Erase unlearned samples from all files now, without waiting for the deadline.", ({ erasures, late }) =>
        h("p", { class: late ? "bad" : "good" }, erasures === 1 ? "1 erasure was finished." : `${number(erasures)} erasures were finished.`, late ? ` After the deadline: ${number(late)}.` : null)));
  }
  new Snapshot(view, file);
}

function work(view, kind, label, text, tell) {
  const place = h("div", { class: "stack" });
  const onEnd = ({ result }) => place.append(tell(result));
  const begin = async () => follow(await api.post(`/model/${kind}`, {}, { signal: view.signal }), place, label, onEnd);
  resume(view, kind, place, label, onEnd, kind !== "scrub").catch(() => {}); // of a scrub nothing tells when it was
  return h("div", { class: "model-work" }, button(label, { onclick: begin }), h("p", { class: "muted" }, text), place);
}

function verified(view, result) {
  const distance = result.distance_to_fresh;
  const said = h("p");
  const tell = ({ model_version: present }) => {
    const isPresent = present === result.model_version;
    said.className = result.ok ? (isPresent ? "good" : "") : "bad";
    said.textContent = [
      `Version ${number(result.model_version)} is ${result.ok ? "verified: it is sound." : "NOT sound: scrub it, and tell the operator of the server."}`,
      isPresent ? "" : `Version ${number(present)}, the current one, is not verified.`,
    ].join(" ").trim();
  };
  view.on("model", tell);
  tell(live.model);
  return h("div", { class: "stack" }, said,
    result.wrong ? h("ul", { class: "small" }, result.wrong.map((text) => h("li", {}, text))) : null,
    definitions([
      result.live_digest === null ? null : ["Digest of the model", digest(result.live_digest, { label: "model's digest" })],
      result.fresh_digest === null ? null : ["Digest of the fresh model", digest(result.fresh_digest, { label: "fresh model's digest" })],
      distance === undefined || distance === null ? null : ["Distance to a fresh fit", typeof distance === "number" ? number(distance) : JSON.stringify(distance)],
    ]));
}

class Snapshot {
  #view;
  #newest = h("div");
  #bar = h("progress", { max: 1 });
  #words = h("span", { class: "small muted" });
  #going = h("div", { hidden: true }, this.#words, this.#bar);
  #isTransfer = false; // the server reports its own progress at the same time, which does not belong here
  #said = h("p", { role: "status" });

  constructor(view, body) {
    this.#view = view;
    const admin = mayChange("admin");
    replace(body, this.#newest,
      h("div", { class: "row" },
        admin ? button("Write a snapshot now", { onclick: () => this.#write() }) : null,
        mayChange("read") ? button("Download", { onclick: () => this.#download() }) : null),
      admin ? this.#restoreForm() : null, this.#going, this.#said);
    if (session.can("read")) this.#read();
    view.on("snapshot", () => this.#read());
    view.on("work", (all) => {
      const one = all.find(({ kind }) => kind === "restore" || kind === "snapshot");
      if (this.#isTransfer) return;
      if (one) this.#progress(one.kind === "restore" ? "The server restores the model" : "The server writes a snapshot", one.progress);
      else this.#going.hidden = true;
    });
  }

  #read() {
    const read = (signal) => api.get("/snapshot", { signal }).catch((error) => {
      if (error.slug === "no-snapshot" || error.slug === "ephemeral") return null;
      throw error;
    });
    const render = (one) => definitions([
      ["Newest", time(one.created_at, { mode: "ago" })],
      ["Version", number(one.model_version)],
      ["Size", bytes(one.bytes)],
      ["Digest", digest(one.digest)],
    ]);
    return this.#view.show(this.#newest, read, render, { empty: (one) => (one ? null : "There is no snapshot.") });
  }

  #progress(text, value) {
    this.#going.hidden = false;
    this.#words.textContent = `${text}: ${share(value)}`;
    this.#bar.setAttribute("aria-label", text);
    this.#bar.value = value;
  }

  async #write() {
    await api.post("/snapshot", {}, { signal: this.#view.signal });
    this.#said.textContent = "The snapshot is written.";
    await this.#read();
  }

  async #download() {
    const sure = await confirm({
      title: "Download the newest snapshot?",
      body: h("p", {}, "The file contains every sample: keep it as safe as the data. The ledger records the download, and later receipts count it, because the server cannot erase anything from a copy."),
      action: "Download",
    });
    if (!sure) return;
    const blob = await this.#during(() => download("/snapshot/file", (done) => this.#progress("Downloaded", done), this.#view.signal));
    save("oubli-snapshot.safetensors", blob);
    this.#said.textContent = `Downloaded: ${bytes(blob.size)}.`;
  }

  async #during(run) {
    this.#isTransfer = true;
    try {
      return await run();
    } finally {
      this.#isTransfer = false;
      this.#going.hidden = true;
    }
  }

  #restoreForm() {
    const control = h("input", { type: "file", accept: ".safetensors" });
    const field = formField({ label: "Restore a snapshot", control, hint: "Samples that were erased, rectified or expired after the file was written are not restored." });
    const restore = async () => {
      const [file] = control.files;
      field.setError(file ? null : "Choose a file first.");
      if (!file) return void control.focus();
      const body = h("p", {}, `The file (${bytes(file.size)}) replaces the model with its ${number(live.model?.n_samples ?? 0)} samples. Samples that were added after the file was written are lost.`);
      if (await confirm({ title: "Restore this snapshot?", body, action: "Restore", danger: true, typed: "restore" })) await this.#restore(file);
    };
    return h("div", { class: "model-restore" }, field, button("Restore", { kind: "danger", onclick: restore }));
  }

  async #restore(file) {
    const sent = (done) => {
      this.#progress(done < 1 ? "Sent" : "Sent, and the server reads it", done);
      this.#isTransfer = done < 1;
    };
    const result = await this.#during(() => upload("/snapshot/file", file, sent, this.#view.signal));
    const dropped = Object.entries(result.dropped).map(([name, count]) => `${number(count)} ${name.replaceAll("_", " ")}`).join(", ");
    replace(this.#said, definitions([
      ["Restored", `version ${number(result.snapshot_model_version)}, now version ${number(result.model_version)}`],
      ["Samples", number(result.n_samples)],
      ["Not brought back", dropped],
      ["No longer held", number(result.no_longer_held)],
      ["Checked", CHECKED[result.verified] ?? result.verified],
    ]));
    toast("The snapshot is restored.");
    await live.refresh();
  }
}
