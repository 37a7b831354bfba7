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

export function savesPage({ checkpoints }) {
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
  ];
}

