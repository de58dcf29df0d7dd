/** The present state of the model and the server. */

import { bars, liveLine } from "../elements/chart.js";
import { deadlineOf, ring, standing } from "../elements/receipt.js";
import { state } from "../elements/state.js";
import { definitions } from "../elements/table.js";
import { digest, secondsUntil, time } from "../elements/text.js";
import { api, isAbort } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { bytes, capital, duration, number, rate, share } from "../lib/format.js";
import { live } from "../lib/live.js";
import { session } from "../lib/session.js";
import { go, View } from "../lib/view.js";
import "./now-field.js";
import { showNodes } from "./now-nodes.js";

const NAMES = { forest: "forest", tree: "tree", "online-boosting": "boosted model", "incremental-boosting": "boosted model" };
const CLAIMS = {
  exact: (name) => `This ${name} is exactly the one you would get by training on these samples alone, bit for bit.`,
  "epsilon-feasible": (name) => `Every split of this ${name} is within its bound of the best one. A scrub rebuilds it from these samples alone.`,
  approximate: (name) => `This ${name} is close to the one you would get by training on these samples. A scrub rebuilds it from these samples alone.`,
};
const TRAFFIC = [["predict", "Predictions"], ["add", "Additions"], ["delete", "Deletions"]];
const MOST_PENDING = 12;

export default class Now extends View {
  static heading = "Now";
  #pending = [];
  #reads = null;

  async enter() {
    this.count = h("strong", { class: "now-count" });
    this.claim = h("p", { class: "now-claim prose" });
    this.field = document.createElement("sample-field");
    this.legend = h("p", { class: "now-legend small muted" });
    this.append(h("div", { class: "now-hero" }, h("p", { class: "now-head" }, this.count, h("span", {}, " samples held")), this.claim, this.field, this.legend));
    this.erasures = this.section("Erasures");
    showNodes(this.section("Nodes", { hidden: true }), this.signal);
    this.work = this.section("In progress", { hidden: true });
    this.#addTraffic();
    this.about = this.section("Model");
    this.disk = this.section("Disk and memory");
    for (const type of ["model", "check"]) this.on(type, () => this.#showModel());
    for (const type of ["snapshot", "scrub", "ledger"]) this.on(type, () => this.#showDisk());
    for (const type of ["jobs", "work"]) this.on(type, () => this.#showWork());
    this.on("erasures", () => this.#readErasures());
    this.on("state", () => this.#showState());
    this.#showModel();
    this.#showDisk();
    this.#showWork();
    this.#showState();
    this.#readErasures();
    const timer = setInterval(() => this.#showRings(), 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
    live.metrics((metrics) => this.#take(metrics), this.signal);
  }

  #addTraffic() {
    const body = this.section("Traffic");
    this.waiting = h("p", { class: "small muted" }, "Waiting for the first second.");
    this.lines = {};
    const columns = TRAFFIC.map(([name, title]) => {
      this.lines[name] = [liveLine({ label: `${title} a second` }), liveLine({ label: "p50 and p99", series: 2, isLogarithmic: true })];
      return h("div", { class: "stack" }, this.lines[name]);
    });
    body.append(h("div", { class: "now-traffic" }, columns), this.waiting);
  }

  #take(metrics) {
    this.metrics = metrics;
    for (const [name] of TRAFFIC) {
      const { per_second: perSecond, p50_ms: p50, p99_ms: p99 } = metrics[name];
      const [rates, times] = this.lines[name];
      rates.push([perSecond], rate(perSecond));
      times.push([p50, p99], p50 === null ? "none" : `${duration(p50 / 1000)}, ${duration(p99 / 1000)}`);
    }
    this.waiting.textContent = metrics.waiting ? `${number(metrics.waiting)} requests wait for the model (the limit is ${number(metrics.waiting_limit)}).` : "No request waits for the model.";
    this.field.setSamples(metrics.n_samples);
    this.field.setTags(metrics.lazy_tags);
    this.field.pulse(metrics.predict.per_second);
    this.#showLegend();
    this.#showModel();
    this.#showDisk();
  }

  #showModel() {
    const { model, metrics, sections } = { model: live.model, metrics: this.metrics, sections: live.sections };
    const name = NAMES[model.kind] ?? "model";
    this.count.textContent = number(metrics?.n_samples ?? model.n_samples);
    this.claim.textContent = (CLAIMS[model.guarantee] ?? CLAIMS.approximate)(name);
    this.field.setSamples(metrics?.n_samples ?? model.n_samples);
    const { check, snapshot } = sections;
    this.#fill(this.about, "model", [
      ["Kind", h("span", {}, h("code", {}, model.kind), ` (${model.task})`)],
      ["Guarantee", model.guarantee],
      ["Version", number(model.model_version)],
      snapshot && ["Digest", h("span", {}, digest(snapshot.digest), h("span", { class: "muted small" }, ` at version ${number(snapshot.model_version)}`))],
      session.can("read") && ["Last verification", check ? verificationOf(check, model.model_version) : "None since the start"],
      model.n_restricted > 0 && ["Restricted", `${number(model.n_restricted)} samples are stored, and the model does not learn from them`],
      ["Durable", model.durable ? "Yes: acknowledged changes survive a crash" : "No: a restart brings deleted rows back (--ephemeral)"],
      metrics && ["Up for", duration(Math.floor(metrics.uptime_s))],
    ]);
  }

  #showDisk() {
    const { metrics, sections } = { metrics: this.metrics, sections: live.sections };
    const lag = metrics?.snapshot.lag_records;
    this.#fill(this.disk, "disk", [
      metrics?.journal.records !== undefined && ["Journal", h("span", {}, `${number(metrics.journal.records ?? 0)} records, ${bytes(metrics.journal.bytes ?? 0)}`, metrics.journal.oldest_at ? [", the oldest from ", time(metrics.journal.oldest_at, { mode: "ago" })] : null)],
      sections.snapshot && ["Snapshot", h("span", {}, time(sections.snapshot.created_at, { mode: "ago" }), `, ${bytes(sections.snapshot.bytes)}`, lag ? `, ${number(lag)} records behind` : "")],
      ["Scrub", sections.scrub ? time(sections.scrub.at, { mode: "ago" }) : metrics?.scrub.at ? time(metrics.scrub.at, { mode: "ago" }) : "None since the start"],
      sections.ledger && ["Ledger", `${number(sections.ledger.index)} entries`],
      ["Memory", metrics ? `${bytes(metrics.memory.model_bytes)} of the model, ${bytes(metrics.memory.process_bytes ?? 0)} of the process` : bytes(live.model.memory_bytes)],
    ]);
  }

  /** Replace the pairs if one of them has changed. */
  #fill(body, name, pairs) {
    const list = definitions(pairs);
    const text = list.textContent;
    this.texts ??= {};
    if (this.texts[name] === text) return;
    this.texts[name] = text;
    if (!body.contains(document.activeElement)) replace(body, list);
  }

  #showWork() {
    const { jobs = [], work = [] } = live.sections;
    const active = [...jobs.filter((job) => job.status === "running" || job.status === "queued"), ...work];
    this.work.parentElement.hidden = active.length === 0;
    replace(this.work, bars(active.map((one) => ({ label: capital(one.kind), value: one.progress, text: one.status === "queued" ? "waiting" : share(one.progress), tone: "accent" })), { max: 1 }));
  }

  async #readErasures() {
    if (!session.can("read", "erase")) return this.#showErasures();
    if (this.#reads) {
      this.#reads.again = true;
      return undefined;
    }
    const reads = { again: false };
    this.#reads = reads;
    try {
      const { erasures } = await api.get("/erasures", { query: { status: "unlearned", limit: 100 }, signal: this.signal });
      this.#pending = erasures;
      this.#showErasures();
    } catch (error) {
      if (!isAbort(error)) this.#showErasures();
    } finally {
      this.#reads = null;
    }
    return reads.again && !this.signal.aborted ? this.#readErasures() : undefined;
  }

  #showErasures() {
    const { pending = 0, overdue = 0, erased, erased_late: late } = live.sections.erasures ?? {};
    const n = Math.max(pending, this.#pending.length);
    const done = [
      erased ? h("span", { class: "muted" }, ` ${number(erased)} finished since the server started.`) : null,
      late ? h("strong", { class: "bad" }, ` Finished after the deadline: ${number(late)}.`) : null,
    ];
    if (n === 0) replace(this.erasures, state("empty", ["None is pending: unlearned samples are gone from all files.", done]));
    else {
      const due = overdue ? h("strong", { class: "bad" }, ` ${number(overdue)} overdue.`) : "";
      const shown = this.#pending.slice(0, MOST_PENDING).map((one) => this.#pendingItem(one));
      replace(this.erasures, h("p", {}, `${number(n)} unlearned, but not yet erased from all files.`, due, done), shown.length ? h("ul", { class: "now-pending" }, shown) : null);
    }
    this.#showRings();
  }

  #pendingItem(receipt) {
    const samples = receipt.unlearned === 1 ? "1 sample" : `${number(receipt.unlearned)} samples`;
    const when = deadlineOf(receipt) ? time(deadlineOf(receipt), { mode: "left" }) : time(receipt.unlearned_at, { mode: "ago" });
    return h("li", {}, ring(receipt), h("div", {}, h("button", { class: "button button-plain", type: "button", onclick: () => go("erasures", { receipt: receipt.id }) }, `${capital(receipt.kind)} of ${samples}`), h("div", { class: standing(receipt).isLate ? "bad" : "muted" }, when)));
  }

  #showRings() {
    const seconds = live.sections.erasures?.deadline_s;
    this.field.setErasures(this.#pending.map((receipt) => {
      const left = seconds ? secondsUntil(deadlineOf(receipt)) / seconds : 1;
      return { id: receipt.id, share: Math.min(1, Math.max(0, left)), isLate: standing(receipt).isLate };
    }));
  }

  #showLegend() {
    const n = this.field.perDot;
    const tags = this.metrics.lazy_tags;
    const resolved = this.metrics.resolved_per_second;
    this.legend.textContent = [
      n === 1 ? "A dot is a sample." : `A dot is ${number(n)} samples.`,
      "A ring is an erasure that counts down to its deadline.",
      `${{ 0: "No lazy tag hangs", 1: "1 lazy tag hangs" }[tags] ?? `${number(tags)} lazy tags hang`} from the top${resolved ? `; ${rate(resolved)} a second are resolved and fall` : ""}.`,
    ].join(" ");
  }

  #showState() {
    const isOld = ["reconnecting", "offline", "starting"].includes(live.state);
    this.classList.toggle("now-old", isOld);
  }
}

/** The result of the last comparison with a fresh fit, and whether it was of the current version. */
function verificationOf({ at, ok, model_version: version }, present) {
  const isPresent = version === present;
  return h("span", {},
    h("span", { class: ok ? isPresent && "good" : "bad" }, `Version ${number(version)} ${ok ? "was equal" : "was NOT equal"} to a fresh fit, `, time(at, { mode: "ago" }), "."),
    isPresent ? null : h("strong", {}, ` Version ${number(present)}, the current one, is not verified.`));
}

customElements.define("view-now", Now);
