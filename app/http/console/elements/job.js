/** A job and its progress. */

import { api, ApiError, explain, isAbort } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { share } from "../lib/format.js";
import { watchJob } from "../lib/jobs.js";
import { button } from "./field.js";

const WORDS = { queued: "Waiting for the job before it", running: "Running", succeeded: "Done", failed: "Failed" };

/** Show a job that answers a question, and return its result. It is cancelled when the signal is aborted; a button calls `onCancel`. */
export async function resultOf(job, place, { label, signal, onCancel }) {
  const ended = await new Promise((resolve, reject) => {
    const drop = () => {
      api.delete(`/jobs/${job.id}`).catch(() => {}); // it may have ended
      reject(signal.reason);
    };
    if (signal.aborted) return drop();
    signal.addEventListener("abort", drop);
    const onEnd = (now) => {
      signal.removeEventListener("abort", drop);
      resolve(now);
    };
    replace(place, jobProgress(job, { label, onEnd }), h("div", {}, button("Cancel", { onclick: onCancel })));
  });
  if (ended.status === "failed") throw new ApiError(0, { detail: ended.error });
  return ended.result;
}

/** Show a job until it has ended; `onEnd` gets it then. It is followed as long as the node is in the page. */
export function jobProgress(job, { label, onEnd = () => {} }) {
  const node = document.createElement("job-progress");
  node.follow = async (signal) => {
    const bar = h("progress", { max: "1", "aria-label": label });
    const words = h("span", { class: "small muted", role: "status" });
    replace(node, h("span", {}, label), bar, words);
    const onState = (now) => {
      bar.setAttribute("value", now.progress);
      const text = now.status === "running" ? `${WORDS.running}: ${share(now.progress).replace(/\.\d/, "")}` : now.error ?? WORDS[now.status];
      if (words.textContent !== text) words.textContent = text;
      words.classList.toggle("bad", now.status === "failed");
    };
    try {
      onEnd(await watchJob(job, onState, signal));
    } catch (error) {
      if (isAbort(error)) return;
      const ended = { ...job, status: "failed", error: error.slug === "no-job" ? "The server was restarted, and the job is gone. Start it again." : explain(error) };
      onState(ended);
      onEnd(ended);
    }
  };
  return node;
}

class JobProgress extends HTMLElement {
  connectedCallback() {
    this.end = new AbortController();
    this.follow(this.end.signal);
  }

  disconnectedCallback() {
    this.end.abort(new DOMException("left", "AbortError"));
  }
}

customElements.define("job-progress", JobProgress);
