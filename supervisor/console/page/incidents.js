// Incidents: the list, and one with its story, evidence and cost.

import { file, Trouble } from "./api.js";
import { h } from "./dom.js";
import { bars } from "./ledgers.js";
import { evidence } from "./plan.js";
import { to } from "./route.js";
import { amount, count, names, number, planId, sentence, span, stamp } from "./say.js";

/** All incidents, newest first. */
export function incidentList({ incidents }, run) {
  const rows = [...incidents.incidents].reverse();
  return h(
    "section",
    { class: "panel", "data-key": "incidents", "aria-labelledby": "incidents-title" },
    h("h1", { id: "incidents-title" }, `Incidents: ${rows.length ? number(rows.length) : "none"}`),
    h(
      "ul",
      { class: "cards" },
      rows.map((one) =>
        h(
          "li",
          { "data-key": `incident-${one.number}` },
          h(
            "a",
            { class: `card ${one.closed ? "" : "is-open"}`, href: to(run, { incident: one.number }) },
            h("span", { class: "sign", "aria-hidden": "true" }, one.closed ? "✓" : "◆"),
            h("span", { class: "card-text" }, h("b", null, `Incident ${one.number}`), h("span", { class: "word" }, one.reason)),
            h("span", { class: "dim" }, `${stamp(one.at)}. Suspect: ${names(one.suspects)}. ${sentence(one.state)}${one.lost_s === null ? "" : ` Down ${span(one.lost_s)}.`}${one.redo_iterations ? ` ${count(one.redo_iterations, "iteration")} to redo.` : ""}`),
          ),
        )),
    ),
  );
}

/** Of which report it was told last that it can't be had, and how. */
const missed = { of: "", text: "" };

/** Fetched with the token and handed to the browser as a file: a plain link would carry no token. */
async function save(run, number, kind) {
  Object.assign(missed, { of: "", text: "" });
  try {
    const made = URL.createObjectURL(await file(`/api/runs/${encodeURIComponent(run)}/incidents/${number}/report.${kind}`));
    h("a", { href: made, download: `${run}-incident-${number}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(made), 10_000);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    Object.assign(missed, { of: `${run} ${number}`, text: `The report can't be had: ${error.message}.` }); // drawn with the next tick
  }
}

function report(run, number) {
  const told = h("span", { role: "status", "data-key": "report-told" }, missed.of === `${run} ${number}` ? missed.text : "");
  const button = (kind, word) => h("button", { type: "button", onclick: () => save(run, number, kind) }, word);
  return h("div", { class: "buttons" }, button("html", "Report as HTML"), button("md", "Report as Markdown"), told);
}

/** One incident whole. */
export function incidentPage(doc, run) {
  const { incident, cost } = doc;
  const diagnosis = incident.diagnosis;
  return [
    h("p", { "data-key": "back" }, h("a", { href: to(run, { view: "incidents" }) }, "All incidents")),
    h(
      "section",
      { class: "panel", "data-key": "incident", "aria-labelledby": "incident-title" },
      h("h1", { id: "incident-title" }, `Incident ${incident.number}: ${diagnosis?.reason ?? incident.trouble.reason}`),
      h("p", null, sentence(doc.state)),
      report(run, incident.number),
      h("h2", null, "Earliest error"),
      diagnosis?.first.length ? h("ul", { class: "plain" }, evidence(diagnosis.first)) : h("p", null, diagnosis ? "Not found." : "Not yet known."),
      h(
        "dl",
        { class: "facts" },
        [
          ["Seen", sentence(incident.trouble.text)],
          ["Then", diagnosis?.cascade && sentence(diagnosis.cascade)],
          ["Suspect", diagnosis?.suspects.length ? `${names(diagnosis.suspects)} (${diagnosis.category}, confidence ${diagnosis.confidence.toFixed(2)})` : "nobody can be named"],
          ["Why", diagnosis?.why && sentence(diagnosis.why)],
          ["Evidence", incident.evidence && sentence(incident.evidence)],
          ["Plan", doc.plan && `${planId(doc.plan)}${incident.approved_by ? `, approved by ${incident.approved_by}` : ""}${incident.plan_changed ? ", changed first" : ""}${incident.plan_refused ? ", one was refused" : ""}`],
          ["Barred", incident.barred.length && names(incident.barred)],
          ["Way back", incident.checkpoint && `iteration ${number(incident.checkpoint_step)}, ${incident.checkpoint}`],
        ].filter(([, value]) => value).map(([key, value]) => [h("dt", null, key), h("dd", null, value)]),
        incident.rejected.map((one) => [h("dt", null, "Not used"), h("dd", null, `${one.id}: ${sentence(one.why)}`)]),
      ),
    ),
    h(
      "section",
      { class: "panel", "data-key": "split", "aria-labelledby": "split-title" },
      h("h2", { id: "split-title" }, "Where the time went"),
      bars(doc.split_s),
      h("p", null, `${doc.lost_s === null ? "Not over yet" : `Down ${span(doc.lost_s)}`}; ${doc.redo_iterations === null ? "iterations to redo unknown" : `${count(doc.redo_iterations, "iteration")} to redo`}; ${doc.samples_read_again === null ? "samples unknown" : `${amount(doc.samples_read_again)} samples read again`}${incident.closed ? `; ${number(cost.rank_hours, 1)} GPU-hours` : ""}.`),
    ),
    h("section", { class: "panel", "data-key": "story", "aria-labelledby": "story-title" }, h("h2", { id: "story-title" }, "Story"), h("pre", { tabindex: "0", "aria-label": "Story" }, doc.story)),
  ];
}
