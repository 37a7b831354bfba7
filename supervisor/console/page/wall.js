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
const GAP = 2;
const LEAST = 13;
const MOST = 30;

/** Where everything stands on a wall of this width: long rows are broken, so that a finger still hits one cell. */
function plan(stages, width) {
  const longest = Math.max(...stages.map(([, row]) => row.length));
  const room = width - LABEL;
  const fits = Math.max(1, Math.floor(room / (width < 600 ? 16 : LEAST)));
  const lines = Math.ceil(longest / fits);
  const across = Math.ceil(longest / lines);
  const pitch = Math.min(MOST, room / across);
  return { across, lines, pitch, stage: lines * pitch + (lines > 1 ? 8 : 0) };
}

/** The wall. `tapped(slot)` is called with the slot that was tapped. */
export function wall(doc, width, tapped) {
  const stages = rows(doc.slots);
  if (!stages.length) return h("p", { class: "dim" }, "No attempt holds any slot yet.");
  const { across, lines, pitch, stage } = plan(stages, width);
  const size = pitch - GAP;
  const bad = doc.slots.filter((slot) => markOf(slot.holder) !== "well");
  const cells = stages.map(([name, row], y) => [
    h("svg:text", { x: 0, y: y * stage + size / 2 + 4, class: "stage" }, name),
    row.map((slot, i) => cell(slot, LABEL + (i % across) * pitch, y * stage + Math.floor(i / across) * pitch, size)),
  ]);
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
      "data-lines": lines,
      onclick: (event) => {
        const slot = event.target.closest("[data-slot]");
        if (slot) tapped(doc.slots.find((one) => one.slot === Number(slot.dataset.slot)));
      },
    },
    cells,
  );
}

function cell(slot, x, y, size) {
  const mark = markOf(slot.holder);
  const letter = MARKS[mark][0];
  return h(
    "svg:g",
    { "data-slot": slot.slot, class: `cell is-${mark}` },
    h("svg:rect", { x, y, width: size, height: size, rx: mark === "well" ? 2 : size / 2 }),
    letter ? h("svg:text", { x: x + size / 2, y: y + size / 2, "font-size": Math.max(9, size * 0.75) }, letter) : null,
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
