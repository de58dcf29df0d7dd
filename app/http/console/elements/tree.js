// A tree of the ensemble as a picture: samples flow from the root at the left, and nodes open one by one.

import { h, svg, replace, uid } from "../lib/dom.js";
import { number, share } from "../lib/format.js";
import { bars } from "./chart.js";
import { quoted } from "./text.js";

const COLUMN = 224;
const ROW = 48;
const BAR = 7;
const FLOW = 76; // height of the root's samples
const MARGIN = 28;
const LETTERS = 26;
const segments = new Intl.Segmenter();

/**
 * `<model-tree>`: give it the answer of `GET /model/trees/{n}` with `open`, and what asks for more as `ask`.
 *
 * Keys are those of a tree view: arrows walk, right opens, left closes, Enter does either.
 */
export class ModelTree extends HTMLElement {
  /** Takes a node, answers with `GET /model/trees/{n}?node=`; undefined when there is no such node any more. */
  ask = null;
  #answer = null;
  #nodes = new Map();
  #opened = new Set([""]);
  #current = "";
  #picture = svg("svg", { class: "tree-picture" });
  #detail = h("div", { class: "tree-detail" });

  connectedCallback() {
    replace(this, h("div", { class: "tree-scroll" }, this.#picture), this.#detail);
  }

  /** Show a tree from its root on. */
  open(answer) {
    this.#answer = answer;
    this.#nodes.clear();
    this.#opened = new Set();
    this.#current = "";
    this.#take(answer.node, true);
    this.#draw();
  }

  #take(node, opens) {
    this.#nodes.set(node.path, node);
    for (const child of [node.left, node.right]) {
      if (!child) continue;
      if (opens) this.#opened.add(node.path);
      this.#take(child, opens);
    }
  }

  #childrenOf(path) {
    return this.#opened.has(path) ? ["l", "r"].map((side) => path + side) : [];
  }

  /** The nodes that are shown, from the top down, each before what is below it. */
  #shown(path = "") {
    return [path, ...this.#childrenOf(path).flatMap((child) => this.#shown(child))];
  }

  async #toggle(path) {
    const node = this.#nodes.get(path);
    if (!node.split) return;
    if (this.#opened.has(path)) {
      this.#opened.delete(path);
    } else {
      if (!this.#nodes.has(`${path}l`)) {
        const answer = await this.ask(node);
        if (answer === undefined) return;
        this.#take(answer.node, false);
      }
      if (this.#nodes.has(`${path}l`)) this.#opened.add(path);
    }
    this.#current = path;
    this.#draw();
    this.#focus();
    for (const child of this.#childrenOf(path)) this.#itemOf(child).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  #itemOf(path) {
    return this.#picture.querySelector(`[data-path="${path}"]`);
  }

  #focus() {
    this.#itemOf(this.#current)?.focus();
  }

  #go(path) {
    if (!this.#nodes.has(path)) return;
    this.#current = path;
    for (const item of this.#picture.querySelectorAll('[role="treeitem"]')) {
      item.setAttribute("tabindex", item.dataset.path === path ? 0 : -1);
    }
    this.#focus();
    this.#describe();
  }

  #press(event) {
    const shown = this.#shown();
    const place = shown.indexOf(this.#current);
    const isOpen = this.#opened.has(this.#current);
    const moves = {
      ArrowDown: () => this.#go(shown[Math.min(place + 1, shown.length - 1)]),
      ArrowUp: () => this.#go(shown[Math.max(place - 1, 0)]),
      ArrowRight: () => (isOpen ? this.#go(`${this.#current}l`) : this.#toggle(this.#current)),
      ArrowLeft: () => (isOpen ? this.#toggle(this.#current) : this.#go(this.#current.slice(0, -1))),
      Home: () => this.#go(""),
      End: () => this.#go(shown.at(-1)),
      Enter: () => this.#toggle(this.#current),
      " ": () => this.#toggle(this.#current),
    };
    if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  }

  #draw() {
    const places = this.#layOut();
    const columns = Math.max(...[...places.values()].map(({ x }) => x)) + COLUMN + BAR;
    const rows = Math.max(...[...places.values()].map(({ y, height }) => y + height / 2)) + MARGIN;
    const width = Math.ceil(columns);
    const height = Math.ceil(rows);
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
      this.#picture.setAttribute(name, value);
    }
    const items = svg("g", { role: "tree", "aria-label": `Tree ${this.#answer.tree + 1}`, onkeydown: (event) => this.#press(event) });
    for (const [path, place] of places) items.append(this.#item(path, place));
    replace(this.#picture, ...[...places.keys()].map((path) => this.#flow(path, places)), items);
    this.#describe();
  }

  /** Say where each node stands: leaves below each other, the others in the middle of theirs. */
  #layOut() {
    const places = new Map();
    const total = Math.max(1, this.#nodes.get("").n_samples);
    let next = MARGIN + FLOW / 2;
    const put = (path) => {
      const place = { x: 12 + path.length * COLUMN, height: Math.max(3, (this.#nodes.get(path).n_samples / total) * FLOW) };
      places.set(path, place);
      const below = this.#childrenOf(path).map(put);
      place.y = below.length ? (below[0].y + below[1].y) / 2 : next;
      if (!below.length) next += ROW;
      return place;
    };
    put("");
    return places;
  }

  #flow(path, places) {
    const [left, right] = this.#childrenOf(path).map((child) => places.get(child));
    if (!left) return null;
    const { x, y, height } = places.get(path);
    const from = x + BAR;
    const band = (child, top) => {
      const middle = (from + child.x) / 2;
      const end = child.y - child.height / 2;
      const bottom = top + Math.min(child.height, height);
      return svg("path", {
        class: "tree-flow",
        d:
          `M${from} ${top}C${middle} ${top} ${middle} ${end} ${child.x} ${end}V${end + child.height}` +
          `C${middle} ${end + child.height} ${middle} ${bottom} ${from} ${bottom}Z`,
      });
    };
    const side = (text, child) => svg("text", { class: "tree-side", x: child.x - 6, y: child.y - 4, "text-anchor": "end" }, text);
    const top = y - height / 2;
    return [
      band(left, top),
      band(right, top + height - Math.min(right.height, height)),
      side("yes", left),
      side("no", right),
    ];
  }

  #item(path, { x, y, height }) {
    const node = this.#nodes.get(path);
    const isOpen = this.#opened.has(path);
    const item = svg(
      "g",
      {
        role: "treeitem",
        class: node.split ? "tree-node" : "tree-node tree-leaf",
        tabindex: path === this.#current ? 0 : -1,
        "aria-level": path.length + 1,
        "aria-posinset": path.endsWith("r") ? 2 : 1,
        "aria-setsize": path ? 2 : 1,
        "aria-expanded": node.split ? String(isOpen) : null,
        "aria-label": `${sideOf(path)}${this.#question(node)}, ${number(node.n_samples)} samples`,
        onclick: () => (this.#current === path || node.split ? this.#toggle(path) : null, this.#go(path)),
      },
      svg("title", {}, this.#question(node)),
      svg("rect", { class: "tree-target", x: x - 4, y: y - 22, width: COLUMN - 40, height: 44 }),
      this.#mixture(node, x, y, height),
      svg("text", { class: "tree-question", x: x + BAR + 7, y: y - 3 },
        node.split ? svg("tspan", { class: "tree-mark" }, isOpen ? "− " : "+ ") : null, cut(this.#question(node))),
      svg("text", { class: "tree-count", x: x + BAR + 7, y: y + 13 }, this.#count(node)),
    );
    item.dataset.path = path;
    return item;
  }

  /** The classes of the samples in a node, as parts of its bar. */
  #mixture(node, x, y, height) {
    const counts = node.counts ?? [node.n_samples];
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    let top = y - height / 2;
    return counts.map((count, place) => {
      const part = (height * count) / total;
      const tone = counts.length === 1 ? 4 : Math.round((place * 4) / (counts.length - 1));
      const box = svg("rect", { class: `tree-part tree-tone-${tone}`, x, y: top, width: BAR, height: part });
      top += part;
      return box;
    });
  }

  #question(node) {
    if (node.text) return shown(node.text);
    const { says, classes } = this.#answer;
    if (says !== "classes") return node.value === null ? "no value" : String(Number(node.value.toPrecision(5)));
    const most = node.counts.indexOf(Math.max(...node.counts));
    return node.n_samples ? shown(classes[most]) : "no samples";
  }

  #count(node) {
    const samples = node.n_samples === 1 ? "1 sample" : `${number(node.n_samples)} samples`;
    if (!node.counts || !node.n_samples) return samples;
    const most = Math.max(...node.counts);
    return `${samples}, ${share(most / node.n_samples)} ${cut(shown(this.#answer.classes[node.counts.indexOf(most)]), 10)}`;
  }

  /** Describe below the picture the path to the current node, and its samples. */
  #describe() {
    const node = this.#nodes.get(this.#current);
    const way = [...this.#current].map((side, place) => {
      const { text } = this.#nodes.get(this.#current.slice(0, place));
      return h("li", {}, h("span", { class: "tree-answer" }, side === "l" ? "yes" : "no"), quoted(text));
    });
    const { classes } = this.#answer;
    const id = uid("way");
    replace(
      this.#detail,
      h("h3", { id }, way.length ? "The way to this node" : "The root: all samples that this tree learns"),
      way.length ? h("ol", { class: "tree-way", "aria-labelledby": id }, way) : null,
      h("p", {}, h("bdi", {}, this.#question(node)), `: ${number(node.n_samples)} samples.`),
      node.counts ? bars(node.counts.map((value, place) => ({ label: quoted(classes[place]), value, text: number(value) }))) : null,
    );
  }
}

function sideOf(path) {
  if (!path) return "";
  return path.endsWith("l") ? "yes: " : "no: ";
}

/** Text of the model's users, in which nothing turns or hides what stands beside it. */
const shown = (text) => quoted(text).textContent;

function cut(text, letters = LETTERS) {
  const parts = Array.from(segments.segment(text), ({ segment }) => segment);
  return parts.length > letters ? `${parts.slice(0, letters - 1).join("")}…` : text;
}

customElements.define("model-tree", ModelTree);
