/** Files to and from the person at the page, with progress. */

import { api, ApiError, OfflineError } from "./api.js";
import { session } from "./session.js";

const ROOT = new URL("../../", import.meta.url);

/** Hand a file to the person at the page. */
export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Hand over something as a file of JSON. */
export function saveJson(name, content) {
  save(name, new Blob([`${JSON.stringify(content, null, 2)}\n`], { type: "application/json" }));
}

/** Download a file; `onProgress` takes the share that has come. Returns it as a blob. */
export async function download(path, onProgress, signal) {
  const answer = await api.raw("GET", path, { signal });
  const total = Number(answer.headers.get("Content-Length"));
  const parts = [];
  let length = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts, { type: "application/octet-stream" });
    parts.push(value);
    length += value.length;
    if (total) onProgress(length / total);
  }
}

/** Send a file as the body of a PUT; `onProgress` takes the share that has gone. Returns the answer. */
export function upload(path, file, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const { key } = session;
    const request = new XMLHttpRequest(); // `fetch` tells nothing of how much has gone
    request.open("PUT", new URL(path.slice(1), ROOT));
    request.responseType = "json";
    request.setRequestHeader("Content-Type", "application/octet-stream");
    if (key) request.setRequestHeader("Authorization", `Bearer ${key}`);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status < 300) resolve(request.response);
      else {
        if (request.status === 401) session.lock(key);
        reject(new ApiError(request.status, request.response ?? {}));
      }
    };
    request.onerror = () => reject(new OfflineError());
    request.onabort = () => reject(new DOMException("left", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}
