"""One incident as a document, ready for a post-mortem. Pure: History and what lies beside it in, blocks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

from policies import ledger
from policies.decisions import Recover
from policies.facts import INFRASTRUCTURE, Finding
from policies.history import History, Incident
from supervisor.telling import charts
from supervisor.telling.answers_told import Said
from supervisor.telling.charts import Curve
from supervisor.telling.document import Block, Heading, Items, Lines, Picture, Table, Text
from supervisor.telling.incident_facts import Known, begin, find_incident, last_attempt, lost_s, plan_of, redo, split
from supervisor.telling.incident_story import checkpoint_text, incident_story, replay_text, state_of, where
from supervisor.telling.plan_page import past_of, past_text
from supervisor.telling.say import clock, count, moment, names, number, plan_id, sentence, span, stamp

if TYPE_CHECKING:
    from policies.history import Attempt

MOMENTS: Final = (
    ("last_good", "Last good update"),
    ("detected", "Stop noticed"),
    ("confirmed", "Confirmed; incident opened"),
    ("evidence", "Evidence kept"),
    ("decided", "Plan made"),
    ("approved", "Plan approved"),
    ("stopped", "Attempt down"),
    ("relaunched", "Next attempt launched"),
    ("loaded", "Loaded"),
    ("next_good", "Next good update; incident closed"),
    ("caught_up", "Old frontier passed"),
)
DONE: Final = {
    "planned": "Plan made",
    "withdrawn": "Plan withdrawn",
    "changed": "Plan changed",
    "approved": "Approved",
    "refused": "Refused",
    "halted": "Halted",
    "resumed": "Resumed",
    "paused": "Paused",
    "unbarred": "Bar lifted",
    "told": "People told",
    "reached": "Notice arrived",
}
LISTED = 40


@dataclass(frozen=True, slots=True)
class Beside:
    """What a report has beside the History. `first`, `again`: losses of the iterations that were done again, in both passes."""

    said: tuple[Said, ...] = ()
    first: Curve = ()
    again: Curve = ()
    tokens_per_sample: int = 0
    files: tuple[str, ...] = ()


def report(history: History, wanted: int, known: Known, beside: Beside | None = None) -> list[Block]:
    """The document. LookupError (one line for people) when the run has no such incident."""
    beside = beside or Beside()
    one = find_incident(history, wanted)
    kind = "infrastructure" if one.fault in INFRASTRUCTURE else "software"
    return [
        Heading(1, f"{history.run}: incident {one.number}, {one.reason} ({kind})"),
        Text(state_of(history, one, known)),
        Text(f"As of {stamp(known.now, known.zone)}." if known.now is not None else "As of the end of the journal."),
        Heading(2, "Story"),
        Lines(incident_story(history, wanted, known)),
        Heading(2, "Times"),
        _times(one, known),
        Heading(2, "Evidence"),
        *_evidence(one, known, beside),
        Heading(2, "Suspects"),
        *_suspects(history, one, known),
        Heading(2, "Plans and answers"),
        *_plans(history, one, known, beside),
        Heading(2, "What was rejected"),
        *_rejected(one),
        Heading(2, "Where the time went"),
        *_spent(one),
        Heading(2, "What it cost"),
        *_cost(history, one, known, beside),
        Heading(2, "Losses of the replay over the first pass"),
        *_losses(one, beside),
        Heading(2, "Samples read again"),
        *_samples(one),
        Heading(2, "What is not known"),
        Items(unknowns(history, one, known) or ["Nothing that this report asks for."]),
        Heading(2, "What we change"),
        Table(("What", "Who", "By when"), [("", "", "")] * 3),
    ]


def _times(one: Incident, known: Known) -> Table:
    """Each moment in UTC and local time, in the order of the times."""
    start = begin(one)
    rows = []
    told = [(getattr(one.times, field), text) for field, text in MOMENTS]
    for at, text in sorted((at, text) for at, text in told if at is not None):
        utc = moment(at, UTC)
        rows.append((text, f"{utc:%Y-%m-%d %H:%M:%S}" if utc else "unknown", stamp(at, known.zone), span(at - start)))
    return Table(("Moment", "UTC", "Local", "After the last good update"), rows)


def _evidence(one: Incident, known: Known, beside: Beside) -> list[Block]:
    diagnosis = one.diagnosis
    found: Sequence[Finding] = diagnosis.first if diagnosis else ()
    blocks: list[Block] = [Text(f"Seen first: {sentence(one.trouble.text) or 'the run stopped.'}")]
    if found:
        head = ("Earliest error" if len(found) == 1 else "One of the earliest errors", "When", "Where", "File")
        blocks.append(Table(head, [(f.text, _when(f, known, one), where(f), _place(f)) for f in found[:LISTED]]))
    if diagnosis and diagnosis.cascade:
        blocks.append(Text(f"Then: {sentence(diagnosis.cascade)}"))
    if diagnosis and diagnosis.why:
        blocks.append(Text(f"Concluded: {sentence(diagnosis.why)}"))
    blocks.append(Text(f"Kept: {sentence(one.evidence) or 'no evidence is on record.'}"))
    if beside.files:
        more = len(beside.files) - LISTED
        shown = [*beside.files[:LISTED], *([f"and {count(more, 'file')} more"] if more > 0 else [])]
        blocks += [Text(f"Files in incidents/{one.number:04d}/:"), Items(shown)]
    return blocks


def _when(finding: Finding, known: Known, one: Incident) -> str:
    if moment(finding.wall, known.zone) is None:
        return "unknown"
    bound = f", give or take {span(finding.offset_bound)}" if finding.offset_bound >= 1 else ""
    return f"{clock(finding.wall, known.zone, begin(one))}{bound}"


def _place(finding: Finding) -> str:
    if not finding.file:
        return ""
    return f"{finding.file}:{finding.line}" if finding.line is not None else finding.file


def _suspects(history: History, one: Incident, known: Known) -> list[Block]:
    diagnosis = one.diagnosis
    suspects = diagnosis.suspects if diagnosis else ()
    told = dict.fromkeys((*suspects, *one.barred))
    if not told:
        return [Text("Nobody can be named, and nobody was barred.")]
    rows = []
    for node in told:
        blamed = f"suspect, confidence {diagnosis.confidence:.2f}" if diagnosis and node in suspects else "no suspect"
        rows.append(
            (
                node,
                blamed,
                "barred" if node in one.barred else "not barred",
                past_text(past_of(history, one, node), known).partition(": ")[2],
            )
        )
    return [Table(("Node", "Here", "Quarantine", "What the run remembers of it"), rows)]


def _plans(history: History, one: Incident, known: Known, beside: Beside) -> list[Block]:
    attempt, digest = last_attempt(history, one), plan_of(history, one)
    blocks: list[Block] = []
    if digest:
        carried = attempt is not None
        who = f"approved by {one.approved_by} at {stamp(one.times.approved, known.zone)}" if one.approved_by else ""
        how = who or ("carried out without asking" if carried else "not carried out")
        blocks.append(Text(f"Plan {plan_id(digest)} ({digest}): {how}."))
    if attempt or isinstance(history.decision, Recover):
        if one.checkpoint:
            back = checkpoint_text(one.checkpoint, one.checkpoint_step, known, one.times.decided)
            blocks.append(Text(f"Way back: {back}."))
        elif one.times.decided is not None:
            blocks.append(Text("Way back: from nothing; no save was completed."))
        moved = [f"{new} takes slot {slot} of {old}" for slot, old, new in one.swaps]
        blocks.append(Text(f"Swap: {names(moved, 16)}." if moved else "Swap: no slot changed hands."))
    rows = [(stamp(s.at, known.zone), DONE[s.what], plan_id(s.digest), s.who, s.why) for s in beside.said]
    if rows:
        blocks.append(Table(("When", "What", "Plan", "Who", "Why, or with what"), rows))
    return blocks or [Text("No plan was made.")]


def _rejected(one: Incident) -> list[Block]:
    if not one.rejected:
        return [Text("No save was passed over.")]
    return [Table(("Save", "Why it was no way back"), [(r.id, r.why) for r in one.rejected])]


def _spent(one: Incident) -> list[Block]:
    parts = split(one.times)
    if not parts:
        return [Text("Not known yet.")]
    total = sum(seconds for _, seconds in parts)
    rows = [(name, span(seconds), f"{seconds / total:.0%}") for name, seconds in parts]
    return [Table(("Part", "Time", "Share"), [*rows, ("all", span(total), "")]), Picture(charts.bar(parts))]


def _cost(history: History, one: Incident, known: Known, beside: Beside) -> list[Block]:
    steps, samples = redo(one)
    down = lost_s(one)
    rows = [
        ("From the last good update to the next", span(down) if down is not None else "not known, or not over"),
        ("Updates done again", number(steps) if steps is not None else "not known"),
        ("Samples read again", number(samples) if samples is not None else "not known"),
    ]
    if known.layout:
        spent = ledger.cost(one, known.layout.world, beside.tokens_per_sample)
        rows.append(("GPU-hours, waiting and work done again (a GPU a rank)", f"{spent.rank_hours:,.1f}"))
        rows += [("Tokens read again", number(spent.tokens_again))] if beside.tokens_per_sample else []
    books = history.books
    rows += [
        ("Update ledger of the run: computed", number(books.computed)),
        ("of these in the current lineage", number(ledger.lineage(books))),
        ("of these rolled back", number(books.rolled_back)),
        ("Sample ledger of the run: read again", number(books.samples_read_again)),
    ]
    return [Table(("", "Amount"), rows)]


def _losses(one: Incident, beside: Beside) -> list[Block]:
    text = replay_text(one.replay) if one.replay else "No replay is on record."
    picture = charts.losses(beside.first, beside.again)
    drawn = [Picture(picture, "Line: the first pass. Points: the replay.")] if picture else []
    return [Text(text), *drawn]


def _samples(one: Incident) -> list[Block]:
    again = ledger.read_again(one)
    if again is None:
        return [Text("None, or not known.")]
    return [Text(f"{number(again.count)} samples: {number(again.first)} to {number(again.first + again.count - 1)}.")]


def unknowns(history: History, one: Incident, known: Known) -> list[str]:
    """What a reader of this report would ask and nobody can answer, one sentence each."""
    diagnosis, attempt = one.diagnosis, last_attempt(history, one)
    found = diagnosis.first if diagnosis else ()
    lines = []
    if not found:
        lines.append("The earliest error was not found." if diagnosis else "No diagnosis was made.")
    if len(found) > 1:
        lines.append(f"Which of {len(found)} errors was first: the clocks cannot say.")
    lines += [f"When {where(f)} failed, to better than {span(f.offset_bound)}." for f in found if f.offset_bound >= 1]
    lines += [f"When {where(f)} failed: its line has no time." for f in found if moment(f.wall, known.zone) is None]
    if not diagnosis or not diagnosis.suspects:
        lines.append("Whom to blame: no node can be named.")
    elif diagnosis.inferred:
        lines.append("The suspect wrote no error: it was inferred from what the others did.")
    if one.frontier and not one.frontier_samples:
        lines.append("How many samples had been read: nobody counted them.")
    return [*lines, *_unknown_times(one), *_unknown_return(one, attempt, known)]


def _unknown_times(one: Incident) -> list[str]:
    skip = {"approved"} if not one.approved_by else set()
    if not one.closed:
        after = next((i for i in range(len(MOMENTS), 0, -1) if getattr(one.times, MOMENTS[i - 1][0]) is not None), 0)
        skip |= {field for field, _ in MOMENTS[after:]}
    skip |= {"caught_up"}  # told by the state of the incident
    return [f"When: {text}." for f, text in MOMENTS if getattr(one.times, f) is None and f not in skip]


def _unknown_return(one: Incident, attempt: Attempt | None, known: Known) -> list[str]:
    lines = []
    if attempt is not None and attempt.limited:
        lines.append("What the ranks loaded: only log lines and exits of them are known.")
    if one.closed and one.times.caught_up is not None and (one.replay is None or not one.replay.compared):
        lines.append("Whether the replay gave the same losses: there was no first pass to compare with.")
    if known.layout is None:
        lines.append("What it cost in GPU-hours: the layout is not at hand.")
    return lines
