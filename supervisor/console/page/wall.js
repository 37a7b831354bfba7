// The wall of nodes: one cell a slot, a row for each pipeline stage, a column for each data-parallel group.

import { h } from "./dom.js";
import { count, names, number } from "./say.js";

export const MARKS = {
  well: ["", "in its slot and well"],
  suspect: ["X", "suspect of the open incident"],
  down: ["D", "down"],
  silent: ["S", "silent: does not answer"],
  unknown: ["?", "unknown: can't be seen"],
  unwell: ["!", "up, but something is known against it"],
};

/** Which mark a node gets: the worst that is known of it. */
export function markOf(holder) {
  if (holder.why.some((one) => one.startsWith("suspect"))) return "suspect";
  if (holder.state !== "up") return holder.state in MARKS ? holder.state : "unknown";
  return holder.well ? "well" : "unwell";
}

/** Rows of slots by pipeline stage, each in the order of its data-parallel groups. */
export function rows(slots) {
  const stages = new Map();
  for (const slot of slots) {
    const name = slot.place.pp.length > 1 ? `${slot.place.pp[0]}–${slot.place.pp.at(-1)}` : String(slot.place.pp[0]);
    if (!stages.has(name)) stages.set(name, []);
    stages.get(name).push(slot);
  }
  for (const row of stages.values()) row.sort((a, b) => a.place.dp[0] - b.place.dp[0] || a.slot - b.slot);
  return [...stages];
}

const LABEL = 26;
const MOST = 30;
const MARKED = 17;
/** Points that a cell takes at least: to look at, and to hit with a finger. */
const LEAST = { seen: 7, wide: 13, hit: 17 };

/** Where everything stands on a wall of this width: long rows are broken, so that each cell has the room it needs. */
function plan(stages, width, least) {
  const longest = Math.max(...stages.map(([, row]) => row.length));
  const room = Math.max(120, width - LABEL);
  const lines = Math.ceil(longest / Math.max(1, Math.floor(room / least)));
  const across = Math.ceil(longest / lines);
  const pitch = Math.min(MOST, room / across);
  return { across, lines, pitch, stage: lines * pitch + (lines > 1 ? 7 : 0) };
}

/** The wall. `tapped(slot)` is called with the slot that was tapped; `small`: it is only looked at. */
export function wall(doc, width, tapped, small) {
  const stages = rows(doc.slots);
  if (!stages.length) return h("p", { class: "dim" }, "No attempt holds any slot yet.");
  const { across, lines, pitch, stage } = plan(stages, width, width > 600 ? LEAST.wide : small ? LEAST.seen : LEAST.hit);
  const size = pitch - (pitch < 10 ? 1 : 2);
  const bad = doc.slots.filter((slot) => markOf(slot.holder) !== "well");
  const labels = stages.map(([name], y) => h("svg:text", { x: 0, y: y * stage + size / 2 + 4, class: "stage" }, name));
  const cells = stages.flatMap(([, row], y) => row.map((slot, i) => cell(slot, LABEL + (i % across) * pitch, y * stage + Math.floor(i / across) * pitch, size)));
  cells.sort((a, b) => b.classList.contains("is-well") - a.classList.contains("is-well")); // the others lie over their neighbours
  const told = bad.length ? `Not well: ${names(bad.map((slot) => `${slot.holder.node} in slot ${slot.slot}`), 8)}.` : "All are well.";
  const high = Math.ceil(stages.length * stage);
  return h(
    "svg:svg",
    {
      class: "wall",
      role: "img",
      "aria-label": `Wall of ${count(doc.slots.length, "slot")}, ${count(stages.length, "pipeline stage")} by ${count(doc.dp, "data-parallel group")}. ${told}`,
      width: LABEL + across * pitch,
      height: high,
      viewBox: `0 0 ${LABEL + across * pitch} ${high}`,
      overflow: "visible",
      "data-lines": lines,
      onclick: (event) => {
        const slot = event.target.closest("[data-slot]");
        if (slot) tapped(doc.slots.find((one) => one.slot === Number(slot.dataset.slot)));
      },
    },
    labels,
    cells,
  );
}

function cell(slot, x, y, size) {
  const mark = markOf(slot.holder);
  const letter = MARKS[mark][0];
  const side = mark === "well" ? size : Math.max(size, MARKED);
  const off = (size - side) / 2;
  return h(
    "svg:g",
    { "data-key": slot.slot, "data-slot": slot.slot, class: `cell is-${mark}` }, // the key: a finger on a cell stays on this slot's
    h("svg:rect", { x: x + off, y: y + off, width: side, height: side, rx: mark === "well" ? Math.min(2, size / 5) : side / 2 }),
    letter ? h("svg:text", { x: x + size / 2, y: y + size / 2 + 0.5, "font-size": side * 0.72 }, letter) : null,
  );
}

/** What the marks mean; only those that are seen, and the well one. */
export function legend(doc) {
  const seen = new Map();
  for (const slot of doc.slots) seen.set(markOf(slot.holder), (seen.get(markOf(slot.holder)) ?? 0) + 1);
  return h(
    "ul",
    { class: "legend" },
    Object.entries(MARKS).filter(([mark]) => mark === "well" || seen.has(mark)).map(([mark, [letter, means]]) =>
      h("li", null, h("span", { class: `chip is-${mark}`, "aria-hidden": "true" }, letter), `${number(seen.get(mark) ?? 0)} ${means}`)),
  );
}
