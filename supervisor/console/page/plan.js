// The open plan on one card: what happened, who is blamed, what a yes does and costs, what a no means.

import { h } from "./dom.js";
import { to } from "./route.js";
import { amount, clock, count, names, now, number, planId, sentence, span, stamp } from "./say.js";

const SHOWN = 5;

/** What is done on a yes, in order; the same lines stand on the card and in the question before it is done. */
export function effects(plan, saves) {
  const { page, decision } = plan;
  const save = saves?.find((one) => one.id === page.checkpoint);
  const times = save ? [save.saved_at && `saved ${clock(save.saved_at)}`, save.completed_at && `completed ${clock(save.completed_at)}`].filter(Boolean) : [];
  const lines = [];
  if (page.stops !== null) lines.push(["Stop", `attempt ${page.stops}, fenced first${decision.died ? "" : "; nothing of it has died"}`]);
  lines.push(["Bar", page.bars.length ? names(page.bars) : "nobody", page.bars_why]);
  for (const [slot, from, node] of page.swaps.slice(0, SHOWN)) lines.push(["Swap", `${node} takes slot ${number(slot)} of ${from}`]);
  if (page.swaps.length > SHOWN) lines.push(["Swap", `${number(page.swaps.length - SHOWN)} slots more`]);
  if (!page.swaps.length) lines.push(["Swap", "none; every slot keeps its node"]);
  else if (page.groups_same) lines.push(["Groups", "TP, PP and DP groups as before but for that place: proved"]);
  lines.push(["Start", page.checkpoint ? `attempt ${page.attempt} from iteration ${number(page.checkpoint_step)}` : `attempt ${page.attempt} from nothing; no save was ever completed`, [page.checkpoint, ...times].filter(Boolean).join(", ")]);
  if (decision.skip_samples.length) lines.push(["Left out", decision.skip_samples.map(([first, end]) => `samples ${number(first)} to ${number(end - 1)}`).join(", ")]);
  lines.push(["To redo", `${count(page.redo_iterations, "iteration")}, ${page.redo_samples === null ? "samples unknown" : `${amount(page.redo_samples)} samples read again`}`, page.first_pass_s ? `the first pass took ${span(page.first_pass_s)}` : ""]);
  return lines;
}

export function list(lines) {
  return h("dl", { class: "facts" }, lines.map(([name, value, note]) => [h("dt", null, name), h("dd", null, value, note ? h("span", { class: "note" }, note) : null)]));
}

function where(found) {
  return [found.node, found.rank !== null && `rank ${number(found.rank)}`].filter(Boolean).join(", ") || "place unknown";
}

/** Findings as lines of evidence. */
export function evidence(first) {
  return first.slice(0, SHOWN).map((one) =>
    h(
      "li",
      { class: "finding" },
      h("b", null, `${one.wall === null ? "time unknown" : clock(one.wall)} ${where(one)}`),
      h("code", null, one.text),
      one.file ? h("span", { class: "note" }, one.file, one.line ? `:${one.line}` : "") : null,
    ),
  );
}

function past(one) {
  const bars = one.bars.slice(-2).map((bar) => `barred ${stamp(bar.at)} ${bar.until === null ? "for good" : `until ${stamp(bar.until)}`} (incident ${bar.incident}, ${bar.reason})`);
  const parts = one.incidents.length ? [`part of incident ${names(one.incidents.map(String), 8)}`] : [];
  return [...bars, ...parts].join("; ") || "no earlier bar or incident";
}

/** What has been lost by now, and what a minute costs. */
export function price({ page }) {
  if (page.rank_hours_a_minute === null) return "unknown; the layout is not at hand";
  const lost = Math.max(0, now() - page.began_at) / 60 * page.rank_hours_a_minute;
  return `${number(lost, 1)} GPU-hours`;
}

export function meaningOfNo({ page }) {
  const left = page.a_no_stops ? "is stopped" : "is left as it stands";
  const attempt = page.stops === null ? "" : `attempt ${page.stops} ${left}, `;
  return `A no halts the run: ${attempt}nobody is barred, nothing is started until a person resumes it.`;
}

/** The card. `meant`: the digest of the link that brought somebody here; `all`: what can be chosen from has been read; `answer(kind)` opens a question. */
export function planCard({ plan, saves, run, meant, may, all, answer }) {
  const { page, digest } = plan;
  const stale = meant && !digest.startsWith(meant);
  const ready = { approve: may, change: may && all, refuse: may };
  const ask = (kind, word, more) =>
    h("button", { type: "button", "data-key": kind, class: more, onclick: () => answer(kind), id: `do-${kind}`, disabled: !ready[kind], "aria-keyshortcuts": word[0].toLowerCase() }, word);
  const can = { approve: "approve" in page.commands, change: "checkpoint" in page.commands, refuse: "refuse" in page.commands };
  return h(
    "section",
    { class: `plan ${plan.waits ? "is-wait" : ""}`, "data-key": "plan", id: "plan", tabindex: "-1", "aria-labelledby": "plan-title" },
    h("h2", { id: "plan-title" }, `Plan ${planId(digest)} `, h("span", null, plan.waits ? "waits for you" : page.standing)),
    stale ? h("p", { class: "changed" }, h("b", null, `The plan of your link, ${planId(meant)}, is no longer open. `), "This is the plan now.") : null,
    plan.changed.length ? h("div", { class: "changed" }, h("p", null, `Since plan ${planId(plan.before)}:`), changes(plan.changed)) : null,
    h(
      "p",
      { class: "cost" },
      h("b", null, price(plan)),
      " lost so far",
      page.rank_hours_a_minute === null ? "." : `, ${number(page.rank_hours_a_minute, 1)} more each minute of waiting.`,
    ),
    h("div", { class: "buttons" }, can.approve && ask("approve", "Approve", "yes"), can.change && ask("change", "Change…"), can.refuse && ask("refuse", "Refuse…", "no")),
    may ? null : h("p", { class: "dim" }, "This token may only look; an approver's may answer."),
    may && can.change && !all ? h("p", { class: "dim" }, "Change… opens once the checkpoints and the spares have been read.") : null,
    h("div", { class: "two" }, h("div", null,
    h("h3", null, page.first.length > 1 ? `Earliest error: one of ${page.first.length}; the clocks can't say which was first` : "Earliest error"),
    page.first.length ? h("ul", { class: "plain" }, evidence(page.first)) : h("p", null, "Not found."),
    h(
      "dl",
      { class: "facts" },
      [
        ["Seen", sentence(page.trouble) || "The run stopped."],
        ["Then", page.cascade && sentence(page.cascade)],
        ["Evidence", page.evidence ? sentence(page.evidence) : "Not kept yet."],
        ["Suspect", page.suspects.length ? `${names(page.suspects)}${page.confidence === null ? "" : ` (confidence ${page.confidence.toFixed(2)})`}` : "Nobody can be named."],
      ].filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
      page.past.slice(0, SHOWN).map((one) => [h("dt", null, h("a", { href: to(run, { view: "nodes", node: one.node }) }, one.node)), h("dd", null, past(one))]),
    ),
    ), h("div", null,
    h("h3", null, "A yes does this, in order"),
    list(effects(plan, saves)),
    page.rejected.length
      ? [h("h3", null, "Checkpoints not used"), h("dl", { class: "facts" }, page.rejected.slice(0, SHOWN).map((one) => [h("dt", null, one.id), h("dd", null, sentence(one.why))])), page.rejected.length > SHOWN ? h("p", null, `${number(page.rejected.length - SHOWN)} more.`) : null]
      : null,
    )),
    h("p", { class: "no-means" }, meaningOfNo(plan)),
    h("p", { class: "dim" }, `Incident ${page.incident} (${page.reason}). Open since ${stamp(page.began_at)}. `, h("a", { href: to(run, { incident: page.incident }) }, "Its story")),
    h("details", null, h("summary", null, "From a terminal"), h("pre", { tabindex: "0" }, Object.values(page.commands).join("\n"))),
  );
}

export function changes(lines) {
  return h("ul", { class: "changes" }, lines.map((line) => h("li", null, line)));
}
