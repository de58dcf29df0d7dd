/** Jobs: long work on the server. */

import { api, OfflineError } from "./api.js";
import { pause } from "./stream.js";

const [FIRST, MOST] = [250, 2000];

/** Call `onState` with each state of the job, and return it when it has ended; a broken connection does not stop this. */
export async function watchJob(job, onState, signal) {
  for (let wait = FIRST; ; wait = Math.min(MOST, wait * 1.4)) {
    onState(job);
    if (job.status === "succeeded" || job.status === "failed") return job;
    await pause(wait, signal);
    try {
      job = await api.get(`/jobs/${job.id}`, { signal });
    } catch (error) {
      if (!(error instanceof OfflineError) && error.status !== 503) throw error;
    }
  }
}
