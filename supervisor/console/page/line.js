// The run's line of time: attempts, incidents, and saves from their first byte to their seal.

import { h } from "./dom.js";
import { clock, count, now, number, span, stamp } from "./say.js";

const LEFT = 4;
const LANES = { attempts: 18, incidents: 52, saves: 84 };
const HIGH = 128;
export const WINDOWS = [["all", "All"], ["86400", "24 h"], ["21600", "6 h"], ["3600", "1 h"], ["600", "10 min"]];

/** Marks on the axis: round spans, at most one each 90 points. */
function marks(from, until, width) {
  const steps = [10, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 604800, 2592000];
  const wanted = (until - from) / Math.max(2, width / 90);
  const step = steps.find((one) => one >= wanted) ?? steps.at(-1);
  const made = [];
  for (let at = Math.ceil(from / step) * step; at < until; at += step) made.push(at);
  return made;
}

/** `seconds`: how much of the newest time is shown; "all" for all of it. `back`: so many windows before the newest. */
export function extent(line, seconds, back) {
  const end = line.ended_at ?? now();
  const begin = line.started_at ?? line.attempts[0]?.intended_at ?? end - 60;
  if (seconds === "all") return [begin, Math.max(end, begin + 60)];
  const long = Number(seconds);
  const until = Math.max(begin + long, end - back * long);
  return [until - long, until];
}

/** The line as a picture, `width` points wide. */
export function lineOf({ line, checkpoints }, width, seconds, back) {
  const [from, until] = extent(line, seconds, back);
  const x = (at) => LEFT + Math.min(1, Math.max(0, (at - from) / (until - from))) * (width - 2 * LEFT);
  const inside = (begin, end) => end >= from && begin <= until;
  const bar = (kind, lane, begin, end, text, title) => {
    const wide = Math.max(3, x(end) - x(begin));
    return h(
      "svg:g",
      { class: `span is-${kind}` },
      h("svg:title", null, title),
      h("svg:rect", { x: x(begin), y: lane, width: wide, height: 18, rx: 3 }),
      text && wide > text.length * 7.5 + 8 ? h("svg:text", { x: x(begin) + 5, y: lane + 13.5 }, text) : null,
    );
  };
  const attempts = line.attempts.map((one) => [one, one.closed_at ?? until]).filter(([one, end]) => inside(one.intended_at, end));
  const incidents = line.incidents.map((one) => [one, one.next_good ?? until]).filter(([one]) => inside(one.began_at, one.caught_up ?? until));
  const saves = (checkpoints?.saves ?? []).filter((one) => one.saved_at ?? one.completed_at).map((one) => [one, one.saved_at ?? one.completed_at, one.completed_at ?? (one.phase === "completed" ? one.saved_at : null)]);
  const shown = saves.filter(([, begin, end]) => inside(begin, end ?? until));
  const writing = (checkpoints?.being_written ?? []).filter((one) => inside(one.began_at, until));
  return h(
    "svg:svg",
    { class: "line", role: "img", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, "aria-label": `From ${stamp(from)} to ${stamp(until)}: ${count(attempts.length, "attempt")}, ${count(incidents.length, "incident")}, ${count(shown.length, "save")}. The table below says the same.` },
    marks(from, until, width).map((at) => [h("svg:line", { class: "grid", x1: x(at), x2: x(at), y1: 12, y2: 108 }), h("svg:text", { class: "mark", x: x(at), y: 124, "text-anchor": x(at) < 30 ? "start" : x(at) > width - 30 ? "end" : "middle" }, until - from > 172800 ? clock(at).slice(5, 10) : clock(at).slice(-8, -3))]),
    h("svg:text", { class: "lane", x: LEFT, y: 13 }, "Attempts"),
    attempts.map(([one, end]) => bar(one.accepted_at === null && one.closed_at === null ? "start" : "attempt", LANES.attempts, one.intended_at, end, String(one.number), `Attempt ${one.number}: ${span(end - one.intended_at)}`)),
    h("svg:text", { class: "lane", x: LEFT, y: 48 }, "Incidents: down, then redone"),
    incidents.map(([one, end]) => [
      one.next_good !== null ? bar("redo", LANES.incidents, end, one.caught_up ?? until, "", `Incident ${one.number}: done again`) : null,
      bar("down", LANES.incidents, one.began_at, end, String(one.number), `Incident ${one.number}: ${one.reason}, ${span(end - one.began_at)} down`),
    ]),
    h("svg:text", { class: "lane", x: LEFT, y: 81 }, "Saves: ◇ being written, ◆ completed, × neither"),
    shown.map(([one, begin, end]) => save(one, x(begin), end === null ? null : x(end))),
    writing.filter((one) => !saves.some(([s]) => s.step === one.step && s.attempt === one.attempt)).map((one) => save({ phase: "in-progress", step: one.step }, x(one.began_at), null)),
  );
}

function save(one, begin, end) {
  const kind = one.phase === "completed" ? "completed" : ["in-progress", "framework-done", "not-yet"].includes(one.phase) ? "writing" : "broken";
  const y = LANES.saves + 11;
  const at = end ?? begin;
  const r = 5;
  const shape = kind === "broken" ? `M${at - 4} ${y - 4}l8 8m0 -8l-8 8` : `M${at} ${y - r}l${r} ${r}l-${r} ${r}l-${r} -${r}z`;
  return h("svg:g", { class: `save is-${kind}` }, h("svg:title", null, `Iteration ${number(one.step)}: ${one.phase}`), end !== null && end - begin > 1 ? h("svg:line", { x1: begin, x2: end, y1: y, y2: y }) : null, h("svg:path", { d: shape }));
}

/** The same as words. */
export function lineTable({ line }) {
  const rows = [
    ...line.attempts.map((one) => [one.intended_at, `Attempt ${one.number} from ${one.checkpoint ?? "nothing"}`, one.closed_at, one.closed_at === null ? "open" : `closed at iteration ${number(one.last_step)}`]),
    ...line.incidents.map((one) => [one.began_at, `Incident ${one.number} (${one.reason})`, one.caught_up ?? one.next_good, one.closed ? (one.caught_up === null ? "closed, not caught up yet" : "closed and caught up") : "open"]),
  ].sort((a, b) => b[0] - a[0]);
  return h(
    "details",
    null,
    h("summary", null, "As a table"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts and incidents" },
      h("table", null,
        h("thead", null, h("tr", null, ["From", "What", "Until", "How it stands"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", null, rows.slice(0, 200).map(([from, what, until, how]) => h("tr", null, h("td", null, clock(from)), h("td", null, what), h("td", null, until === null ? "now" : clock(until)), h("td", null, how)))))),
  );
}
