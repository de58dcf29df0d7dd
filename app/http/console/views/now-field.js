/**
 * The samples as a field of dots. An erasure is a hole with a ring that runs out until its deadline; lazy tags hang from
 * the upper edge and fall when they are resolved; dots light up while predictions are answered. The position of a dot
 * means nothing.
 */

import { h } from "../lib/dom.js";

const HEIGHT = 190;
const LEAST_PITCH = 8;
const HANG = 12; // pixels above the dots, where tags hang
const MOST_RINGS = 24;
const MOST_TAGS = 160;
const FRAME = 45; // milliseconds
const NICE = [1, 2, 5];

export class SampleField extends HTMLElement {
  #samples = 0;
  #tags = 0;
  #rings = []; // { id, share, isLate, gone }
  #falling = []; // { x, at }
  #lit = []; // { dot, at, isNew }
  #timer = 0;
  #base = null;

  connectedCallback() {
    this.canvas = h("canvas", { class: "field-canvas", role: "img", "aria-label": "A field of dots: the samples held. The figures below say the same." });
    this.append(this.canvas);
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.resized = new ResizeObserver(() => this.#layOut());
    this.resized.observe(this);
    this.themed = () => this.#layOut();
    addEventListener("themechange", this.themed);
  }

  disconnectedCallback() {
    this.resized.disconnect();
    removeEventListener("themechange", this.themed);
    clearTimeout(this.#timer);
  }

  /** How many samples a dot stands for. */
  get perDot() {
    return this.layout?.perDot ?? 1;
  }

  setSamples(n) {
    if (n === this.#samples) return;
    const before = this.layout?.dots ?? 0;
    const isFirst = this.#samples === 0;
    this.#samples = n;
    this.#layOut();
    if (isFirst) return;
    for (let dot = before; dot < Math.min(this.layout.dots, before + 200); dot += 1) this.#light(dot, true);
  }

  setTags(n) {
    const fallen = Math.min(40, this.#hanging(this.#tags) - this.#hanging(n));
    for (let i = 0; i < fallen; i += 1) this.#falling.push({ x: this.#tagPlace(this.#hanging(n) + i), at: performance.now() + 12 * i });
    this.#tags = n;
    this.#draw();
  }

  /** Rings of unfinished erasures: a ring that is no longer named closes. */
  setErasures(rings) {
    const named = new Set(rings.map((ring) => ring.id));
    const isSame = this.#rings.length === named.size && this.#rings.every((ring) => named.has(ring.id));
    const closing = this.#rings.filter((ring) => !named.has(ring.id)).map((ring) => ({ ...ring, gone: ring.gone ?? performance.now() }));
    this.#rings = [...closing, ...rings.slice(0, MOST_RINGS)];
    if (isSame) this.#draw();
    else this.#layOut();
  }

  /** Light up some dots, by the number of predictions in the last second. */
  pulse(perSecond) {
    if (this.still.matches || !this.layout?.dots) return;
    const n = Math.min(50, Math.ceil(perSecond));
    for (let i = 0; i < n; i += 1) this.#light(Math.floor(Math.random() * this.layout.dots), false, (1000 * i) / n);
  }

  #light(dot, isNew, delay = 0) {
    this.#lit.push({ dot, isNew, at: performance.now() + delay });
    this.#draw();
  }

  #hanging = (n) => Math.min(MOST_TAGS, n);
  #tagPlace = (i) => 4 + ((i * 0.618034 * this.layout.width) % Math.max(1, this.layout.width - 8));

  /** Choose size and number of the dots, and draw those that do not move. */
  #layOut() {
    const width = this.clientWidth;
    if (width === 0) return;
    const room = HEIGHT - HANG - 6;
    const perDot = nice(this.#samples / ((width * room) / LEAST_PITCH ** 2));
    const dots = Math.ceil(this.#samples / perDot);
    const rows = Math.max(1, Math.min(Math.round(Math.sqrt((dots * room) / width)), Math.floor(room / LEAST_PITCH)));
    const columns = Math.max(1, Math.ceil(dots / rows));
    const pitch = [width / columns, room / rows];
    const radius = Math.max(1.6, Math.min(7, 0.24 * Math.min(...pitch)));
    this.layout = { width, perDot, pitch, rows, dots, radius, ring: Math.min(18, Math.max(11, 2.2 * radius)) };
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = HEIGHT * scale;
    this.canvas.style.setProperty("height", `${HEIGHT}px`);
    const style = getComputedStyle(this.canvas);
    this.inks = { dot: style.color, accent: style.fill, bad: style.stroke, line: style.stopColor };
    this.holes = this.#rings.filter((ring) => !ring.gone).map((ring) => this.#center(ring));
    this.#base = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    const context = this.#base.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = this.inks.dot;
    for (let dot = 0; dot < dots; dot += 1) this.#dot(context, dot);
    this.#draw();
  }

  #place(dot) {
    const { pitch, rows } = this.layout;
    return [(Math.floor(dot / rows) + 0.5) * pitch[0], HANG + 6 + ((dot % rows) + 0.5) * pitch[1]];
  }

  #dot(context, dot) {
    const [x, y] = this.#place(dot);
    const free = this.layout.ring + this.layout.radius + 2;
    if (this.holes.some(([left, top]) => (left - x) ** 2 + (top - y) ** 2 < free ** 2)) return;
    context.beginPath();
    context.arc(x, y, this.layout.radius, 0, 2 * Math.PI);
    context.fill();
  }

  /** Where a ring lies: somewhere among the dots, by a hash of its receipt's id. */
  #center(ring) {
    let hash = 2166136261;
    for (const sign of ring.id) hash = Math.imul(hash ^ sign.charCodeAt(0), 16777619) >>> 0;
    const margin = this.layout.ring + 3;
    const [right, down] = [this.layout.width - 2 * margin, HEIGHT - HANG - 6 - 2 * margin];
    return [margin + ((hash % 9973) / 9973) * Math.max(0, right), HANG + 6 + margin + (((hash >>> 12) % 997) / 997) * down];
  }

  #draw() {
    if (this.#timer || !this.#base) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.isConnected) this.#paint(performance.now());
    }, FRAME);
  }

  #paint(now) {
    const context = this.canvas.getContext("2d");
    const scale = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.#base, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    this.#paintLit(context, now);
    this.#paintTags(context, now);
    this.#paintRings(context, now);
    const moves = this.#lit.length + this.#falling.length + this.#rings.filter((ring) => ring.gone).length;
    if (moves && !this.still.matches) this.#draw();
  }

  #paintLit(context, now) {
    this.#lit = this.#lit.filter((one) => now < one.at + 900 && one.dot < this.layout.dots);
    context.fillStyle = this.inks.accent;
    for (const one of this.#lit) {
      if (now < one.at) continue;
      context.globalAlpha = 1 - (now - one.at) / 900;
      this.#dot(context, one.dot);
    }
    context.globalAlpha = 1;
  }

  #paintTags(context, now) {
    context.fillStyle = this.inks.accent;
    for (let i = 0; i < this.#hanging(this.#tags); i += 1) context.fillRect(this.#tagPlace(i), 0, 1.5, HANG - 3);
    this.#falling = this.#falling.filter((one) => now < one.at + 700);
    for (const one of this.#falling) {
      const age = Math.max(0, (now - one.at) / 700);
      context.globalAlpha = 1 - age;
      context.fillRect(one.x, age * age * (HEIGHT - HANG), 1.5, HANG - 3);
    }
    context.globalAlpha = 1;
  }

  #paintRings(context, now) {
    this.#rings = this.#rings.filter((ring) => !ring.gone || (now < ring.gone + 600 && !this.still.matches));
    context.lineWidth = 3;
    for (const ring of this.#rings) {
      const [x, y] = this.#center(ring);
      const closing = ring.gone ? (now - ring.gone) / 600 : 0;
      const radius = this.layout.ring * (1 - closing);
      const share = ring.isLate || ring.gone ? 1 : ring.share;
      context.strokeStyle = this.inks.line;
      arc(context, x, y, radius, 1);
      context.strokeStyle = ring.isLate ? this.inks.bad : this.inks.accent;
      arc(context, x, y, radius, share);
    }
  }
}

function arc(context, x, y, radius, share) {
  context.beginPath();
  context.arc(x, y, Math.max(0, radius), -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
  context.stroke();
}

/** The next of 1, 2, 5, 10, 20 ... */
function nice(value) {
  for (let power = 1; ; power *= 10) {
    const found = NICE.find((one) => one * power >= value);
    if (found) return found * power;
  }
}

customElements.define("sample-field", SampleField);
