// Where the time went, both ledgers, and how often people agreed with the plans.

import { h } from "./dom.js";
import { to } from "./route.js";
import { amount, count, number, percent, span } from "./say.js";

const WIDE = 600;

/** Seconds by part as one stacked bar, with the numbers below it. */
export function bars(split) {
  const parts = Object.entries(split);
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (!total) return h("p", { class: "dim" }, "No time is known yet.");
  let x = 0;
  const rects = parts.map(([name, seconds], index) => {
    const wide = (seconds / total) * WIDE;
    const made = h("svg:rect", { class: `part-${index}`, x, y: 0, width: Math.max(0.5, wide - 1), height: 22 }, h("svg:title", null, `${name} ${span(seconds)}`));
    x += wide;
    return made;
  });
  return h(
    "div",
    null,
    h("svg:svg", { class: "bars", role: "img", viewBox: `0 0 ${WIDE} 22`, preserveAspectRatio: "none", "aria-label": parts.map(([name, seconds]) => `${name} ${span(seconds)}`).join(", ") }, rects),
    h("ul", { class: "legend" }, parts.map(([name, seconds], index) => h("li", null, h("svg:svg", { class: "key", viewBox: "0 0 12 12", "aria-hidden": "true" }, h("svg:rect", { class: `part-${index}`, width: 12, height: 12, rx: 2 })), h("span", null, `${name} `, h("b", null, span(seconds)), ` ${percent(seconds / total)}`)))),
  );
}

/** Both ledgers. */
export function ledgersPage({ ledger }, run) {
  const rows = [
    ["Updates computed", number(ledger.computed)],
    ["in the current lineage", number(ledger.lineage)],
    ["rolled back", number(ledger.rolled_back)],
    ["skipped", number(ledger.skipped)],
    ["Samples seen by these weights", amount(ledger.samples)],
    ["Tokens seen by these weights", ledger.tokens === null ? "unknown" : amount(ledger.tokens)],
    ["Samples read again", amount(ledger.samples_read_again)],
    ["GPU-hours lost to incidents", number(ledger.rank_hours, 1)],
    ["Neither down nor redone, of the time since the start", percent(ledger.effective_share)],
  ];
  return [
    h("section", { class: "panel", "data-key": "time", "aria-labelledby": "time-title" }, h("h1", { id: "time-title" }, "Where the time of all incidents went"), bars(ledger.split_s)),
    h(
      "section",
      { class: "panel", "data-key": "books", "aria-labelledby": "books-title" },
      h("h2", { id: "books-title" }, "Ledgers"),
      ledger.adds_up ? null : h("p", { class: "changed" }, h("b", null, "They do not add up: "), "more was rolled back than computed."),
      h("dl", { class: "facts wide" }, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      ledger.read_again.length
        ? [h("h3", null, "Read again"), h("ul", { class: "plain" }, ledger.read_again.map((one) => h("li", null, h("a", { href: to(run, { incident: one.incident }) }, `Incident ${one.incident}`), `: samples ${number(one.first)} to ${number(one.first + one.count - 1)}, ${amount(one.count)}`)))]
        : null,
    ),
    h(
      "section",
      { class: "panel", "data-key": "agreement", "aria-labelledby": "agreement-title" },
      h("h2", { id: "agreement-title" }, "Plans and people"),
      ledger.agreement.length
        ? h("ul", { class: "plain" }, ledger.agreement.map((one) => h("li", null, h("b", null, one.fault), `: ${number(one.agreed)} of ${count(one.agreed + one.changed + one.wrong, "plan")} approved as they were, ${number(one.changed)} changed first, ${number(one.wrong)} refused.`)))
        : h("p", { class: "dim" }, "Nobody has judged a plan yet."),
    ),
  ];
}
