// The loss by iteration: the first pass as a line, and what was done again laid over it, point by point.

import { h } from "./dom.js";
import { count, loss, number } from "./say.js";

const HIGH = 220;
const PAD = { left: 46, right: 10, top: 10, bottom: 22 };

/** Round numbers between two bounds. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= rough);
  const made = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) made.push(at);
  return made;
}

/** The bounds of what is ordinary: a single spike must not flatten the rest, so 1 in 200 may lie beyond, and is drawn at the edge. */
function bounds(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const cut = Math.floor(sorted.length / 200);
  const low = sorted[cut];
  const high = sorted[sorted.length - 1 - cut];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - room, high + room];
}

function path(points, x, y) {
  let d = "";
  let pen = false;
  let reached = -1;
  for (const one of points) {
    if (one.step <= reached) pen = false; // another attempt has done it once more
    reached = one.step;
    if (one.loss === null) pen = false;
    else {
      d += `${pen ? "L" : "M"}${x(one.step).toFixed(1)} ${y(one.loss).toFixed(1)}`;
      pen = true;
    }
  }
  return d;
}

/** How far the second pass is from the first: [compared, differing, worst]. */
export function overlay({ first, replayed }) {
  const before = new Map(first.map((one) => [one.step, one.loss]));
  let [compared, differing, worst] = [0, 0, 0];
  for (const one of replayed) {
    const was = before.get(one.step);
    if (was === undefined) continue;
    compared += 1;
    if (was === one.loss) continue;
    differing += 1;
    if (was !== null && one.loss !== null) worst = Math.max(worst, Math.abs(one.loss - was) / Math.max(Math.abs(was), 1e-12));
  }
  return [compared, differing, worst];
}

/** In a sentence. */
export function told(doc) {
  const steps = [...doc.first, ...doc.replayed];
  if (!steps.length) return "No iteration of this window has a row yet.";
  const numbers = steps.map((one) => one.step);
  const [compared, differing, worst] = overlay(doc);
  const bad = steps.filter((one) => one.loss === null).length;
  const last = doc.first.at(-1) ?? doc.replayed.at(-1);
  const again = doc.replayed.length
    ? ` ${count(doc.replayed.length, "iteration")} done again; ${compared ? (differing ? `${number(differing)} of ${number(compared)} differ from the first pass, by ${worst.toExponential(1)} at worst` : `all ${number(compared)} equal to the first pass`) : "the first pass lies outside the window"}.`
    : "";
  return `Iterations ${number(Math.min(...numbers))} to ${number(Math.max(...numbers))}; the last loss is ${loss(last.loss)}.${again}${bad ? ` ${count(bad, "iteration")} without a finite loss.` : ""}`;
}

/** The curve as a picture. */
export function curve(doc, width) {
  const all = [...doc.first, ...doc.replayed].filter((one) => one.loss !== null);
  if (!all.length) return null;
  const steps = all.map((one) => one.step);
  const [from, until] = [Math.min(...steps), Math.max(...steps)];
  const [low, high] = bounds(all.map((one) => one.loss));
  const x = (step) => PAD.left + ((step - from) / (until - from || 1)) * (width - PAD.left - PAD.right);
  const y = (value) => PAD.top + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (HIGH - PAD.top - PAD.bottom);
  const dots = (width - PAD.left - PAD.right) / (until - from || 1) > 4; // closer they would only be a band
  return h(
    "svg:svg",
    { class: "curve", role: "img", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, "aria-label": told(doc) },
    ticks(low, high, 4).map((at) => [h("svg:line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(at), y2: y(at) }), h("svg:text", { class: "mark", x: PAD.left - 6, y: y(at) + 4, "text-anchor": "end" }, loss(at))]),
    ticks(from, until, Math.max(2, width / 130)).filter(Number.isInteger).map((at) => h("svg:text", { class: "mark", x: x(at), y: HIGH - 6, "text-anchor": x(at) > width - 40 ? "end" : x(at) < PAD.left + 20 ? "start" : "middle" }, number(at))),
    h("svg:path", { class: "first", d: path(doc.first, x, y) }),
    h("svg:path", { class: "again", d: path(doc.replayed, x, y) }),
    dots ? doc.replayed.filter((one) => one.loss !== null).map((one) => h("svg:circle", { class: "again", cx: x(one.step), cy: y(one.loss), r: 2.5 })) : null,
  );
}

/** The points that were done again beside their first pass. */
export function pointTable(doc) {
  const before = new Map(doc.first.map((one) => [one.step, one.loss]));
  const rows = doc.replayed.length ? doc.replayed : doc.first.slice(-20);
  return h(
    "details",
    null,
    h("summary", null, doc.replayed.length ? "What was done again, as a table" : "The newest iterations as a table"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Losses" },
      h("table", null,
        h("thead", null, h("tr", null, ["Iteration", "Attempt", "Loss", "First pass"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", null, rows.slice(-200).map((one) => h("tr", null, h("td", null, number(one.step)), h("td", null, number(one.attempt)), h("td", null, loss(one.loss)), h("td", null, doc.replayed.length ? (before.has(one.step) ? loss(before.get(one.step)) : "not in the window") : "this is it")))))),
  );
}
