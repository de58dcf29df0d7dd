/** Charts: bars, and lines that are updated live. */

import { h, replace, svg } from "../lib/dom.js";

const POINTS = 90;
const [WIDTH, HEIGHT] = [180, 44];

/** Bars beside their labels; a list for who cannot see them. Tones: `accent` and `bad`. */
export function bars(items, { max = Math.max(...items.map((item) => item.value), 0), label = null } = {}) {
  return h("ul", { class: "bars", "aria-label": label }, items.map((item) => {
    const fill = h("div", { class: "bars-fill", "data-tone": item.tone ?? null });
    fill.style.setProperty("width", `${max > 0 ? (100 * item.value) / max : 0}%`);
    return h("li", {}, h("span", { class: "bars-label" }, item.label), h("div", { class: "bars-track", "aria-hidden": "true" }, fill),
      h("span", { class: "bars-value" }, item.text ?? String(item.value)));
  }));
}

/**
 * Lines of the last values. `push([a, b], text)`: a value for each line, null for a gap, and what is written beside.
 * Lines begin at zero, or are drawn on a logarithmic scale.
 */
export function liveLine({ label, series = 1, isLogarithmic = false }) {
  const node = document.createElement("live-line");
  node.begin(label, series, isLogarithmic);
  return node;
}

class LiveLine extends HTMLElement {
  #values = [];

  begin(label, series, isLogarithmic) {
    this.isLogarithmic = isLogarithmic;
    this.value = h("span", { class: "line-value" }, "…");
    this.strokes = Array.from({ length: series }, (_, i) => svg("path", { class: `line-stroke line-stroke-${i}` }));
    const frame = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "line-base", d: `M0 ${HEIGHT}H${WIDTH}` }), this.strokes);
    replace(this, h("div", { class: "line-head" }, h("span", { class: "muted" }, label), this.value), frame);
  }

  push(values, text) {
    this.#values = [...this.#values.slice(1 - POINTS), values];
    this.value.textContent = text;
    const all = this.#values.flat().filter((one) => one !== null);
    const scale = this.isLogarithmic ? logarithmic(all) : (value) => value / (1.08 * Math.max(...all, 1e-9));
    this.strokes.forEach((stroke, i) => stroke.setAttribute("d", path(this.#values.map((one) => one[i]), scale)));
  }
}

function logarithmic(values) {
  const [low, high] = [Math.log(Math.min(...values) / 1.5), Math.log(Math.max(...values) * 1.2)];
  return (value) => (Math.log(value) - low) / (high - low);
}

/** The newest value is at the right end. */
function path(values, scale) {
  const step = WIDTH / (POINTS - 1);
  const first = POINTS - values.length;
  let drawn = "";
  let isDown = false;
  values.forEach((value, i) => {
    if (value !== null) drawn += `${isDown ? "L" : "M"}${((first + i) * step).toFixed(1)} ${(HEIGHT * (1 - scale(value))).toFixed(1)}`;
    isDown = value !== null;
  });
  return drawn;
}

customElements.define("live-line", LiveLine);
