// The two pictures that can be zoomed, with their buttons: the line of time and the losses.

import { h } from "./dom.js";
import { lineOf, lineTable, WINDOWS } from "./line.js";
import { curve, pointTable, told } from "./losses.js";

const time = { seconds: "all", back: 0 };
const steps = { from: null, limit: null };
const LIMITS = [50, 200, 400, 1000, 5000];

function button(word, onclick, more = {}) {
  return h("button", { type: "button", onclick, ...more }, word);
}

/** The line of time. `draw` draws all anew once another window is chosen. */
export function line(docs, width, draw) {
  const choose = (seconds, back) => () => {
    Object.assign(time, { seconds, back: Math.max(0, back) });
    draw();
  };
  return h(
    "section",
    { class: "panel", "data-key": "line", "aria-labelledby": "line-title" },
    h("h2", { id: "line-title" }, "Line of time"),
    h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Window of time" },
      WINDOWS.map(([seconds, word]) => button(word, choose(seconds, 0), { "aria-pressed": String(time.seconds === seconds) })),
      time.seconds === "all" ? null : [button("← Earlier", choose(time.seconds, time.back + 1)), button("Later →", choose(time.seconds, time.back - 1), { disabled: time.back === 0 })],
    ),
    lineOf(docs, width, time.seconds, time.back),
    lineTable(docs),
  );
}

/** Both windows as they are at first: another run has other times and other iterations. */
export function newest() {
  Object.assign(time, { seconds: "all", back: 0 });
  Object.assign(steps, { from: null, limit: null });
}

/** The query for the losses of the window that is chosen. */
export function zoomed(ordinary) {
  return new URLSearchParams({ limit: steps.limit ?? ordinary, ...(steps.from ? { from: steps.from } : {}) });
}

/** The losses. `read` reads the window that is chosen now. */
export function losses(doc, width, read) {
  const many = doc.end - doc.start + 1;
  const set = (from, limit) => () => {
    Object.assign(steps, { from: from === null ? null : Math.max(1, from), limit });
    read();
  };
  const middle = Math.round((doc.start + doc.end) / 2);
  const around = (limit) => (steps.from === null ? set(null, limit) : set(middle - Math.round(limit / 2), limit));
  const wider = LIMITS.find((one) => one > many);
  const narrower = [...LIMITS].reverse().find((one) => one < many);
  return h(
    "section",
    { class: "panel", "data-key": "losses", "aria-labelledby": "losses-title" },
    h("h2", { id: "losses-title" }, "Loss"),
    h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Window of iterations" },
      button("+", around(narrower), { disabled: !narrower, "aria-label": "Fewer iterations" }),
      button("−", around(wider), { disabled: !wider, "aria-label": "More iterations" }),
      button("← Earlier", set(doc.start - Math.ceil(many / 2), many), { disabled: doc.start <= 1 }),
      button("Later →", set(doc.start + Math.ceil(many / 2), many), { disabled: steps.from === null || doc.next === null }),
      button("Newest", set(null, steps.limit), { "aria-pressed": String(steps.from === null) }),
    ),
    curve(doc, width),
    h("p", { class: "legend-line" }, h("span", { class: "swatch first", "aria-hidden": "true" }), "first pass ", h("span", { class: "swatch again", "aria-hidden": "true" }), "done again, laid over it"),
    h("p", null, told(doc)),
    pointTable(doc),
  );
}

