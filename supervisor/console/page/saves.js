// Checkpoints: those in the store, newest first, those being written, and what each is good for.

import { h } from "./dom.js";
import { ago, amount, clock, number, sentence, span, stamp } from "./say.js";

const SHAPES = { completed: ["◆", "well"], "in-progress": ["◇", "wait"], "framework-done": ["◇", "wait"], "not-yet": ["◇", "wait"], broken: ["×", "halt"], abandoned: ["×", "over"] };

function row(one, best) {
  const [shape, kind] = SHAPES[one.phase] ?? ["?", "unknown"];
  const more = [
    one.saved_at && `saved ${stamp(one.saved_at)}`,
    one.completed_at && `completed ${clock(one.completed_at)}`,
    one.bytes && `${amount(one.bytes, "B")}`,
    one.location === "archive" && "in the archive",
    one.archived && "a copy is in the archive",
    one.pinned && "pinned",
    one.limited && "limited: no counters",
  ].filter(Boolean);
  return h(
    "li",
    { class: `card is-${kind}`, "data-key": `save-${one.location}-${one.id}` },
    h("span", { class: "sign", "aria-hidden": "true" }, shape),
    h("span", { class: "card-text" }, h("b", null, `Iteration ${number(one.step)}`), h("span", { class: "word" }, one.phase), one.id === best ? h("span", { class: "word" }, "way back") : null),
    h("span", { class: "dim" }, `${one.id}. ${more.length ? sentence(more.join(", ")) : ""} ${sentence(one.reasons.join("; "))}`),
  );
}

/** The way back, tried in a scratch place: the last good one of each kind, and all that are known. */
function drillsPanel(rows) {
  const good = (kind) => rows.find((one) => one.kind === kind && one.ok);
  const last = (kind) => (good(kind) ? `${ago(good(kind).ended_at)}, level ${good(kind).level}, took ${span(good(kind).took_s)}` : "never");
  const parts = (one) => Object.entries(one.parts).map(([name, seconds]) => `${name} ${span(seconds)}`).join(", ");
  return h(
    "section",
    { class: "panel", "data-key": "drills", "aria-labelledby": "drills-title" },
    h("h2", { id: "drills-title" }, "Drills"),
    h("dl", { class: "facts" }, h("dt", null, "Shared store"), h("dd", null, `Last good: ${last("shared")}.`), h("dt", null, "Archive"), h("dd", null, `Last good: ${last("archive")}.`)),
    h("ul", { class: "plain" }, rows.slice(0, 10).map((one) => h("li", null, `${stamp(one.ended_at)}: ${one.kind}, level ${one.level}, ${one.checkpoint}: ${one.ok ? `good in ${span(one.took_s)} (${parts(one)}).` : `failed. ${sentence(one.why)}`}`))),
  );
}

export function savesPage({ checkpoints, drills }) {
  const { saves } = checkpoints;
  const known = new Set(saves.map((one) => `${one.attempt} ${one.step}`));
  const writing = checkpoints.being_written.filter((one) => one.state !== "written" && !known.has(`${one.attempt} ${one.step}`));
  return [
    h(
      "section",
      { class: "panel", "data-key": "saves", "aria-labelledby": "saves-title" },
      h("h1", { id: "saves-title" }, `Checkpoints: ${checkpoints.known ? number(saves.length) : "unknown"}`),
      checkpoints.known ? null : h("p", { class: "changed" }, h("b", null, "The store can't be read now. "), "Nothing is deleted and nothing falls back on that account."),
      h("p", { class: "dim" }, checkpoints.as_of ? `Seen ${ago(checkpoints.as_of)}. ` : "", checkpoints.free_bytes === null ? "Room that is left: unknown." : `Room that is left: ${amount(checkpoints.free_bytes, "B")}.`),
      writing.length ? h("p", null, `Being written: ${writing.map((one) => `iteration ${number(one.step)} since ${clock(one.began_at)}${one.blocked_s === null ? "" : `, training stood still ${span(one.blocked_s)}`}`).join("; ")}.`) : null,
      h("ul", { class: "cards" }, saves.map((one) => row(one, checkpoints.way_back))),
      saves.length ? null : h("p", { class: "dim" }, checkpoints.known ? "No save yet." : ""),
    ),
    drills ? drillsPanel(drills.drills) : null,
  ];
}

