// Elements out of values, and the smallest change of what is shown. Text only ever becomes text: no markup is made of it.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onpointerdown", "onpointermove", "onpointerup"];
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~]?)|\x9b[0-?]*[ -/]*[@-~]?/g;
// Controls, and marks that are not seen but change what is: direction marks, zero widths, soft hyphens, tag characters.
const UNSEEN =
  /[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Cs}/gu;

/** What a log says, as it may be shown: no escapes, no controls but line ends, nothing that turns the direction of reading. */
export function plain(text) {
  return String(text).replace(ESCAPES, "").replace(UNSEEN, " ");
}

/** An element. `on...` are handlers; null, undefined and false leave a property out. "svg:rect" is a rect of SVG. */
export function h(kind, props, ...children) {
  const svg = kind.startsWith("svg:");
  const made = svg ? document.createElementNS(SVG, kind.slice(4)) : document.createElement(kind);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : plain(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
  return made;
}

/**
 * Make the children of `parent` look like `fresh`, with as little change as can be: focus, scroll and what is unfolded stay.
 * What has a `data-key` stays what it is wherever it goes: a finger on it opens what it lay on. The rest goes by its place.
 */
export function patch(parent, ...fresh) {
  const wanted = fresh.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
  const nodes = wanted.map((one) => (one instanceof Node ? one : document.createTextNode(plain(one))));
  const byKey = new Map([...parent.children].filter((one) => one.dataset?.key).map((one) => [one.dataset.key, one]));
  let at = parent.firstChild;
  for (const node of nodes) {
    const key = node.dataset?.key;
    const found = node.parentNode === parent ? node : key ? byKey.get(key) : at;
    byKey.delete(key); // a key that comes twice is two
    const was = found && (found === node || alike(found, node)) ? found : null;
    if (was && was === at) at = at.nextSibling;
    else if (was && parent.moveBefore) parent.moveBefore(was, at); // what moves keeps the focus, where the browser can
    else parent.insertBefore(was ?? node, at);
    if (was && was !== node) sync(was, node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;
}

function sync(was, now) {
  if (was.nodeType === Node.TEXT_NODE) {
    if (was.data !== now.data) was.data = now.data;
    return;
  }
  for (const name of HANDLERS) if (was[name] !== now[name]) was[name] = now[name];
  for (const { name } of [...was.attributes]) {
    const folded = name === "open" && was.nodeName === "DETAILS";
    if (!folded && !now.hasAttribute(name)) was.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) if (was.getAttribute(name) !== value) was.setAttribute(name, value);
  patch(was, ...now.childNodes);
}

const kept = new Map();

/** The node that `make` made for these values; made anew only when one of them is another one. */
export function memo(key, values, make) {
  const before = kept.get(key);
  if (before && before.values.length === values.length && before.values.every((v, i) => v === values[i])) return before.node;
  const node = make();
  node.dataset.key = key;
  kept.set(key, { values, node: keep(before?.node, node) });
  return kept.get(key).node;
}

/** What is shown already stays where it is, and only takes over what is different. */
function keep(before, node) {
  if (!before?.isConnected || !alike(before, node)) return node;
  sync(before, node);
  return before;
}
