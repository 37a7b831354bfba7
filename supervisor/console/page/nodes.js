// Nodes: the wall, those that are not well, spares, quarantine, the history of one, and all of it as a table.

import { h } from "./dom.js";
import { to } from "./route.js";
import { ago, count, number, stamp } from "./say.js";
import { legend, markOf, MARKS, wall } from "./wall.js";

function link(run, node) {
  return h("a", { href: to(run, { view: "nodes", node }) }, node);
}

/** The wall with its legend, in a panel. */
export function wallPanel(doc, run, width, small = false) {
  const age = doc.as_of ? ` Seen ${ago(doc.as_of)}.` : "";
  return h(
    "section",
    { class: "panel", "aria-labelledby": "wall" },
    h("h2", { id: "wall" }, "Nodes"),
    h("p", { class: "dim" }, `${count(doc.slots.length, "slot")}: a row for each pipeline stage, a column for each data-parallel group.${doc.known ? "" : " The cluster can't be read now: every state is unknown."}${doc.known ? "" : age}`),
    wall(doc, width, (slot) => { location.hash = to(run, { view: "nodes", node: slot.holder.node }); }, small),
    legend(doc),
  );
}

/** One node: where it stands, and its past. */
export function nodePanel(docs, run, name) {
  const { nodes, incidents } = docs;
  const slot = nodes.slots.find((one) => one.holder.node === name);
  const spare = nodes.spares.find((one) => one.node === name);
  const holder = slot?.holder ?? spare;
  const bars = [...nodes.quarantined.filter((one) => one.node === name), ...nodes.past_bars.filter((one) => one.node === name)];
  const blamed = (incidents?.incidents ?? []).filter((one) => one.suspects.includes(name));
  const barred = nodes.quarantined.find((one) => one.node === name);
  const place = slot
    ? `slot ${number(slot.slot)}, ranks ${number(slot.first_rank)} to ${number(slot.first_rank + slot.ranks - 1)}, pipeline stage ${slot.place.pp.join(", ")}, data-parallel group ${slot.place.dp.join(", ")}`
    : barred ? "in quarantine" : spare ? "spare" : "not of this run now";
  return h(
    "section",
    { class: "panel node", "data-key": "node", id: "node", tabindex: "-1", "aria-labelledby": "node-title" },
    h("h2", { id: "node-title" }, name),
    h(
      "dl",
      { class: "facts" },
      [
        ["Place", place],
        ["State", holder ? `${holder.state}${holder.since ? ` since ${stamp(holder.since)}` : ""}` : barred?.state ?? "unknown"],
        ["Against it", holder ? (holder.why.length ? holder.why.join("; ") : "nothing") : null],
        ["Last checked", holder?.checked_at ? `${stamp(holder.checked_at)}, ${number(holder.checks)} checks` : null],
        ["Not checked", holder?.unchecked.length ? holder.unchecked.join("; ") : null],
        ["Agent", holder ? (holder.agent ? "answers" : "does not answer") : null],
        ["Switch", holder?.switch],
      ].filter(([, value]) => value).map(([key, value]) => [h("dt", null, key), h("dd", null, value)]),
    ),
    h("h3", null, "History"),
    bars.length || blamed.length
      ? h(
          "ul",
          { class: "plain" },
          bars.map((bar) => h("li", null, `Barred ${stamp(bar.since ?? bar.at)} ${bar.until === null ? "for good" : `until ${stamp(bar.until)}`}${bar.returned_at ? `, back since ${stamp(bar.returned_at)}` : ""}: `, h("a", { href: to(run, { incident: bar.incident }) }, `incident ${bar.incident}`), `, ${bar.reason}.`)),
          blamed.map((one) => h("li", null, "Suspect of ", h("a", { href: to(run, { incident: one.number }) }, `incident ${one.number}`), `, ${stamp(one.at)}, ${one.reason}.`)),
        )
      : h("p", null, "No bar and no incident."),
    h("p", null, h("a", { href: to(run, { view: "nodes" }) }, "All nodes")),
  );
}

/** Those that want a look: slots that are not well, spares, quarantine. */
export function lists(doc, run) {
  const bad = doc.slots.filter((slot) => markOf(slot.holder) !== "well");
  const reasons = (row) => (row.why.length ? row.why.join("; ") : "ready");
  return h(
    "section",
    { class: "panel columns" },
    part("Slots not well", bad.map((slot) => h("li", { "data-key": slot.slot }, link(run, slot.holder.node), ` slot ${number(slot.slot)}: ${slot.holder.why.join("; ") || MARKS[markOf(slot.holder)][1]}`))),
    part("Spares", doc.spares.map((one) => h("li", { "data-key": one.node }, h("span", { class: `chip is-${one.well ? "well" : markOf(one)}`, "aria-hidden": "true" }, one.well ? "" : MARKS[markOf(one)][0]), link(run, one.node), ` ${reasons(one)}`))),
    part("Quarantine", doc.quarantined.map((one) => h("li", { "data-key": one.node }, h("span", { class: "chip is-suspect", "aria-hidden": "true" }, "Q"), link(run, one.node), ` ${one.until === null ? "for good" : `until ${stamp(one.until)}`}, incident ${one.incident} (${one.reason}), ${one.state}`))),
  );
}

function part(title, items) {
  return h("div", null, h("h2", null, `${title}: ${items.length ? number(items.length) : "none"}`), items.length ? h("ul", { class: "plain" }, items) : null);
}

/** The wall as a table, for those who do not see it. */
export function table(doc, run) {
  return h(
    "details",
    { class: "panel" },
    h("summary", null, "All slots as a table"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "All slots" },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, ["Slot", "Node", "Stage", "Group", "Ranks", "State", "Against it"].map((one) => h("th", { scope: "col" }, one)))),
        h(
          "tbody",
          null,
          doc.slots.map((one) =>
            h("tr", null, h("td", null, number(one.slot)), h("th", { scope: "row" }, link(run, one.holder.node)), h("td", null, one.place.pp.join(", ")), h("td", null, one.place.dp.join(", ")), h("td", null, `${one.first_rank}–${one.first_rank + one.ranks - 1}`), h("td", null, one.holder.state), h("td", null, one.holder.why.join("; ") || "nothing"))),
        ),
      ),
    ),
  );
}

