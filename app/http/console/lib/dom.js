/** Build elements. Text always becomes a text node: nothing of a model can become markup. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "indeterminate", "htmlFor", "open"]);
let last = 0;

/** Return a name for an element that no other has. */
export const uid = (prefix = "n") => `${prefix}-${(last += 1)}`;

/** Build an element of HTML: functions become listeners, true and false set and leave out attributes. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Build an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in the place of those that a node has. */
export function replace(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "style") throw new Error("the policy of the page forbids style attributes");
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name) && name in node) node[name] = value ?? "";
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...flat(children));
  return node;
}

const flat = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
