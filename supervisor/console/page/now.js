// What is going on now: one line that a person reads from across the room, and what it rests on.

import { h } from "./dom.js";
import { to } from "./route.js";
import { ago, amount, clock, loss, number, sentence, span, stamp } from "./say.js";
import { standing } from "./standing.js";

const OTHERS = 6;

/** A run in one card of the list. */
export function card(row) {
  const { kind, shape, word } = standing(row);
  const step = typeof row.step === "number" ? `Iteration ${number(row.step)}, loss ${loss(row.loss)}.` : "";
  return h(
    "li",
    { "data-key": `run-${row.run}` },
    h(
      "a",
      { class: `card is-${kind}`, href: to(row.run) },
      h("span", { class: "sign", "aria-hidden": "true" }, shape),
      h("span", { class: "card-text" }, h("b", null, row.run), h("span", { class: "word" }, word)),
      h("span", { class: "dim" }, row.error || sentence(row.standing), " ", row.error ? "" : step),
    ),
  );
}

/** The headline. Since when: the moment that what it says began. */
export function headline(docs) {
  const { status, line } = docs;
  const row = status.glance;
  const { kind, shape, word } = standing(row);
  const since = sinceWhen(kind, docs);
  const moved = status.last_advance ? `, moved ${ago(status.last_advance)}` : "";
  const step = typeof row.step === "number" ? `Iteration ${number(row.step)}, loss ${loss(row.loss)}` : "No iteration yet";
  const phase = status.phase && kind !== "over" ? `, phase ${status.phase}` : "";
  const attempt = row.attempt ? `Attempt ${row.attempt}` : "No attempt yet";
  return h(
    "section",
    { class: `headline is-${kind}`, "data-key": "headline", "aria-labelledby": "headline" },
    h("span", { class: "sign", "aria-hidden": "true" }, shape),
    h(
      "div",
      null,
      h("h1", { id: "headline" }, word, h("span", { class: "unseen" }, `: ${row.run}`)),
      h("p", { class: "say" }, capital(sentence(row.standing))),
      status.halt ? h("p", null, `Lifted by: ${sentence(status.halt.lifts)}`) : null,
      h("p", null, `${step}${kind === "over" ? "" : phase + moved}.`),
      h("p", { class: "dim" }, `${attempt}, mode ${row.mode}.`, since ? ` Since ${stamp(since)}, ${ago(since)}.` : "", started(line)),
    ),
  );
}

function started(line) {
  return line?.started_at ? ` The run began ${stamp(line.started_at)}.` : "";
}

function sinceWhen(kind, { status, plan, line }) {
  const incident = line?.incidents.at(-1);
  if (kind === "halt") return status.halt?.at;
  if (kind === "wait") return plan?.since;
  if (kind === "open") return incident?.began_at;
  if (kind === "over") return line?.ended_at;
  if (kind === "well") return line?.attempts.at(-1)?.accepted_at;
  return null;
}

function capital(text) {
  return text && text[0].toUpperCase() + text.slice(1);
}

function tile(name, value, note, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("dt", null, name), h("dd", null, h("b", null, value), note && h("span", { class: "dim" }, note)));
}

/** Figures in a row. */
export function tiles({ status }) {
  const row = status.glance;
  const best = status.way_back;
  const saved = best?.saved_at ?? best?.completed_at;
  const bad = status.slots_up !== null && status.slots_up < status.slots ? "is-open" : "";
  return h(
    "dl",
    { class: "tiles", "data-key": "tiles" },
    tile("Iteration", number(row.step), status.last_step ? `${amount(status.last_step.samples)} samples` : ""),
    tile("Loss", loss(row.loss), status.last_step?.lr ? `learning rate ${Number(status.last_step.lr.toPrecision(3))}` : ""),
    tile("Slots up", status.slots_up === null ? "unknown" : number(status.slots_up), `of ${number(status.slots)}`, bad),
    tile("Spares ready", status.spares_ready === null ? "unknown" : number(status.spares_ready), `${number(status.quarantined)} in quarantine`),
    tile("Way back to iteration", best ? number(best.step) : "none", best ? (saved ? `saved ${ago(saved)}` : best.id) : "no save is completed"),
    tile("Incidents", number(row.incidents), row.open_incident ? `incident ${row.open_incident} is open` : "none is open", row.open_incident ? "is-open" : ""),
  );
}

/** What changes each second is not read out: an alert would be read again each time. */
function ticking(text) {
  return h("span", { "aria-hidden": "true" }, text);
}

/** What makes everything else doubtful: silence, of the console or of the controller. */
export function warnings({ runs, run, docs, silentS, staleS, trouble }) {
  const made = [];
  const say = (key, word, ...text) =>
    made.push(h("div", { class: `warning is-${key}`, role: "alert", "data-key": key }, h("span", { class: "sign", "aria-hidden": "true" }, "!"), h("p", null, h("b", null, word), " ", text)));
  if (silentS > 10) say("old", "This page is old.", `The console has not answered since ${stamp(Date.now() / 1000 - silentS)}`, ticking(`, for ${span(silentS, true)}`), ". What is below was true then.");
  else if (staleS > 10) say("old", "This page is old.", `The console answers, but has read nothing of this run since ${stamp(Date.now() / 1000 - staleS)}`, ticking(`, for ${span(staleS, true)}`), ". What is below was true then.");
  if (trouble) say("trouble", "A part can't be shown.", sentence(trouble));
  const row = docs.status?.glance;
  if (row && !row.ended && !row.controller_alive && !row.error) {
    const last = row.written_at ? ["It last said something ", stamp(row.written_at), ticking(`, ${ago(row.written_at)}`), "."] : "Nothing is known of when it last did.";
    say("gone", "No controller is alive.", last, ` Nothing is watched or recovered until one is started: ${docs.status.take_over || "relight run"}`);
  }
  const others = run ? runs.filter((other) => other.run !== run && other.waits) : [];
  if (others.length) say("others", "Also waiting for you:", others.slice(0, OTHERS).map((other, index) => [index ? ", " : "", h("a", { "data-key": other.run, href: to(other.run) }, other.run)]), others.length > OTHERS ? ` and ${others.length - OTHERS} more.` : ".");
  return made;
}

/** The newest incidents in short. */
export function recent({ incidents }, run) {
  const rows = (incidents?.incidents ?? []).slice(-3).reverse();
  return h(
    "section",
    { class: "panel", "data-key": "recent", "aria-labelledby": "recent" },
    h("h2", { id: "recent" }, "Newest incidents"),
    rows.length
      ? h("ul", { class: "plain" }, rows.map((one) => h("li", { "data-key": one.number }, h("a", { href: to(run, { incident: one.number }) }, `Incident ${one.number}`), ` ${clock(one.at)}, ${one.reason}. ${sentence(one.state)}`)))
      : h("p", { class: "dim" }, "None so far."),
  );
}

/** The text of `relight status`, for who wants it whole. */
export function asPrinted(title, text, key) {
  return h("details", { class: "panel", "data-key": key }, h("summary", null, title), h("pre", { tabindex: "0" }, text));
}

