/** A job as it goes on. */

import { explain, isAbort } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { share } from "../lib/format.js";
import { watchJob } from "../lib/jobs.js";

const WORDS = { queued: "Waits for the one before", running: "Goes on", succeeded: "Done", failed: "Failed" };

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
      words.textContent = error.slug === "no-job" ? "The server was started again, and the job is gone. Begin it again." : explain(error);
      words.classList.add("bad");
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
