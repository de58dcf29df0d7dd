/** Tables, which may be wider than their place, and pairs of names and values. */

import { h } from "../lib/dom.js";

/** Make a table. A row that opens has a button in its first cell. */
export function table({ caption, columns, rows, onOpen = null }) {
  const head = columns.map((column) => h("th", { scope: "col", class: column.numeric ? "numeric" : null }, column.label));
  const body = rows.map((row) => h("tr", {}, columns.map((column, place) => {
    const content = column.cell(row);
    const opens = onOpen && place === 0;
    const inner = opens ? h("button", { class: "button button-plain", type: "button", onclick: () => onOpen(row) }, content) : content;
    return h("td", { class: [column.numeric && "numeric", column.wide && "wide"].filter(Boolean).join(" ") || null }, inner);
  })));
  return h("div", { class: "table-frame", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", { class: "sr-only" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** Make a list of names and values. */
export const definitions = (pairs) => h("dl", { class: "pairs" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
