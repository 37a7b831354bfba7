"""One incident as people read it. Pure: History in, text out; the same text in terminal, notice and page.

A line stands only on what is known. What is not known is said, or its line is left out; nothing is made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.decisions import Recover
from policies.layout import prove_swap
from policies.skipping import spans_text
from supervisor.telling.incident_facts import (
    Known,
    begin,
    find_incident,
    last_attempt,
    lost_s,
    plan_of,
    redo,
    split,
    waits,
    why_asked,
)
from supervisor.telling.say import (
    amount,
    clean,
    clock,
    count,
    minutes,
    moment,
    names,
    number,
    plan_id,
    sentence,
    span,
    zone_name,
)

if TYPE_CHECKING:
    from datetime import tzinfo

    from policies.facts import Finding, Rejected, Replay
    from policies.history import History, Incident
    from policies.layout import Layout

DAY_S = 86_400
Swaps = tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What happened at one moment; `more` are lines that belong below it."""

    at: float | None
    text: str
    mark: str = ""
    more: tuple[str, ...] = ()


def incident_story(history: History, wanted: int, known: Known | None = None) -> str:
    """One incident from its earliest error to the old frontier. LookupError when the run has no such incident."""
    known = known or Known()
    incident = find_incident(history, wanted)
    entries = [
        *_seen(incident, known),
        *_way_back(history, incident, known),
        *_acted(history, incident, known),
        *_returned(history, incident),
    ]
    lines = [_title(history, incident, known), *_timeline(entries, begin(incident), known.zone)]
    lines += [line for line in (_cost(history, incident, known), _spent(incident)) if line]
    return "\n".join(lines) + "\n"


def state_of(history: History, incident: Incident, known: Known) -> str:
    """Where the incident stands, in one or two sentences."""
    times, halt, start = incident.times, history.halted, begin(incident)
    if halt and halt.incident == incident.number:
        return f"Halted at {clock(halt.at, known.zone, start)}: {halt.reason}. Not restarting until a person resumes."
    if not incident.closed:
        since = "" if known.now is None else f", for {span(known.now - start)}"
        return f"Open since {clock(start, known.zone, known.now)}{since}."
    down = lost_s(incident)
    after = next((i.number for i in history.incidents if i.follows == incident.number), None)
    if times.next_good is None and after is not None:
        return f"Not back before incident {after}, which follows."
    closed = "Closed; how long it took is not known." if down is None else f"Closed after {span(down)}"
    if down is None:
        return closed
    if times.caught_up is not None:
        return f"{closed}; caught up at {clock(times.caught_up, known.zone, start)}."
    if after is not None:
        return f"{closed}; never caught up: incident {after} follows."
    return f"{closed}; not yet caught up with iteration {number(incident.frontier)}."


def _title(history: History, incident: Incident, known: Known) -> str:
    day = ""
    if history.started_at is not None:
        day = f", day {int((begin(incident) - history.started_at) // DAY_S) + 1}"
    seen = moment(begin(incident), known.zone)
    when = f" ({seen:%Y-%m-%d}, {zone_name(seen)})" if seen else ""
    follows = f" Follows incident {incident.follows}." if incident.follows is not None else ""
    return f"Incident {incident.number}{day}{when}. {state_of(history, incident, known)}{follows}"


def _timeline(entries: list[_Entry], start: float, zone: tzinfo | None) -> list[str]:
    """Entries in the order of their times; one without a time stays behind the one it was told after."""
    keyed: list[tuple[float, _Entry]] = []
    key = start
    for entry in entries:
        key = entry.at if entry.at is not None and moment(entry.at, zone) else key
        keyed.append((key, entry))
    lines = []
    first = moment(start, zone)
    day = (first.date(), zone_name(first)) if first else None
    for _, entry in sorted(keyed, key=lambda pair: pair[0]):
        seen = moment(entry.at, zone)
        if seen and (seen.date(), zone_name(seen)) != day:
            # Midnight or a change of the clocks: without this line, later times would seem to run backwards.
            day = (seen.date(), zone_name(seen))
            lines.append(f"-- {seen:%Y-%m-%d}, {zone_name(seen)}")
        mark = f"  [{entry.mark}]" if entry.mark else ""
        lines.append(f"{clock(entry.at, zone) if seen else '        '}  {entry.text}{mark}")
        lines += [f"          {text}" for text in entry.more]
    return lines


def where(finding: Finding) -> str:
    """n0417, rank 3338; or what of it is known."""
    parts = [clean(finding.node, 64)] if finding.node else []
    parts += [f"rank {finding.rank}"] if finding.rank is not None else []
    return ", ".join(parts) if parts else "place unknown"


def _seen(incident: Incident, known: Known) -> list[_Entry]:
    """The last good update, the earliest error, the stop, the cascade, the evidence."""
    times, trouble, diagnosis = incident.times, incident.trouble, incident.diagnosis
    entries = [_Entry(times.last_good, f"Last good update: iteration {number(incident.frontier)}.")]
    if times.last_good is None:
        entries = []
    first = diagnosis.first if diagnosis else ()
    for finding in first:
        mark = "earliest error" if len(first) == 1 else f"one of {len(first)}: the clocks cannot say which was first"
        more = [] if moment(finding.wall, known.zone) else ["When: unknown."]
        if finding.offset_bound >= 1:
            more.append(f"The clock of its node is known to {span(finding.offset_bound)} only.")
        entries.append(_Entry(finding.wall, f"{where(finding)}: {sentence(finding.text)}", mark, tuple(more)))
    more = [] if first else ["Earliest error: not found." if diagnosis else "Earliest error: not yet known."]
    if diagnosis:
        share = f" (category {_kind(incident)}, confidence {diagnosis.confidence:.2f})"
        more.append((f"Suspect: {names(diagnosis.suspects)}" if diagnosis.suspects else "No suspect") + f"{share}.")
        if diagnosis.inferred and diagnosis.why:
            more.append(f"Inferred: {sentence(diagnosis.why)}")
        if diagnosis.restart_ok is False:
            more.append("A restart on the same nodes and data is not expected to help.")
        if diagnosis.data:
            lowest, many = diagnosis.data
            more.append(f"Being read: samples {number(lowest)} to {number(lowest + many - 1)}.")
    at = trouble.at if times.detected is None else times.detected
    entries.append(_Entry(at, sentence(trouble.text) or "The run stopped.", str(trouble.reason), tuple(more)))
    if diagnosis and diagnosis.cascade:
        entries.append(_Entry(None, sentence(diagnosis.cascade), "cascade"))
    if times.confirmed is not None and times.confirmed - at >= 0.1:
        entries.append(_Entry(times.confirmed, "Looked again: confirmed."))
    if times.evidence is not None:
        kept = sentence(incident.evidence) or f"what there was is in incidents/{incident.number:04d}/."
        entries.append(_Entry(times.evidence, f"Evidence kept: {kept}"))
    return entries


def _kind(incident: Incident) -> str:
    """The category for people. `hang.unknown` stands for all that nobody can name, and where ranks have died nothing hung."""
    category = incident.diagnosis.category if incident.diagnosis else ""
    return "unknown" if category == "hang.unknown" and incident.trouble.died else clean(category, 64)


def checkpoint_text(id_: str, step: int | None, known: Known, near: float | None) -> str:
    """An iteration with its id, and when it was saved and completed as far as the store has told."""
    parts = [f"iteration {number(step)} ({clean(id_, 64)})" if step is not None else clean(id_, 64)]
    state = next((c for c in known.checkpoints if c.id == id_), None)
    if state:
        for done, at in (("saved", state.saved_at), ("completed", state.completed_at)):
            parts += [f"{done} {clock(at, known.zone, near)}"] if at is not None else []
        parts += ["from the archive"] if state.location == "archive" else []
    return ", ".join(parts)


def rejected_text(one: Rejected) -> str:
    """A save that was passed over, where it lay, and why."""
    where_it_lay = " in the archive" if one.location == "archive" else ""
    return f"Rejected: {clean(one.id, 64)}{where_it_lay}, {sentence(one.why)}"


def _way_back(history: History, incident: Incident, known: Known) -> list[_Entry]:
    """The checkpoint, those that were not used, the plan and who said yes."""
    times = incident.times
    if times.decided is None:
        return []
    attempt = last_attempt(history, incident)
    offered = history.decision
    is_open = isinstance(offered, Recover) and offered.incident == incident.number and not incident.closed
    planned = offered if isinstance(offered, Recover) and is_open else None
    rejected = tuple(map(rejected_text, incident.rejected))
    entries: list[_Entry] = []
    if incident.checkpoint:
        back = f"Way back: {checkpoint_text(incident.checkpoint, incident.checkpoint_step, known, times.decided)}."
        entries.append(_Entry(times.decided, back, more=rejected))
        entries += _came_back(history, incident, times.decided)
    elif attempt or planned:
        entries.append(_Entry(times.decided, "Way back: from nothing; no save was completed.", more=rejected))
    elif rejected:
        entries.append(_Entry(times.decided, "Way back: none found.", more=rejected))
    digest = plan_of(history, incident)
    plan = f"Plan {plan_id(digest)}." if digest else "Plan."
    if times.approved is not None and incident.approved_by:
        waited = f"waited {span(times.approved - times.decided)}"
        who = clean(incident.approved_by, 64)
        text = f"{plan} Approved {clock(times.approved, known.zone, times.decided)} by {who} ({waited})."
        entries.append(_Entry(times.decided, text))
    elif attempt:
        entries.append(_Entry(times.decided, f"{plan} Carried out without asking."))
    elif planned and digest:
        would = f"It would bar {names(planned.bars)}. " if planned.bars else "It would bar nobody. "
        would += swap_text(planned.swaps, history, incident, planned.slots, known.layout)
        entries.append(_Entry(times.decided, f"{plan} {plan_standing(history, digest, known)}", more=(would,)))
    return entries


def _came_back(history: History, incident: Incident, decided: float) -> list[_Entry]:
    """When the checkpoint was in the store again, where it had to come from the archive."""
    until = incident.times.relaunched
    found = [c for c in history.restored if c.id == incident.checkpoint and c.at >= decided]
    found = [c for c in found if until is None or c.at <= until]
    took = f" It took {span(found[0].took_s)}." if found and found[0].took_s is not None else ""
    return [_Entry(found[0].at, f"Restored from the archive: {clean(found[0].id, 64)}.{took}")] if found else []


def plan_standing(history: History, digest: str, known: Known) -> str:
    """How an open plan stands with the people who may decide."""
    if digest in history.refused:
        return "Refused."
    if history.mode == "observe":
        return "Only observing: this is what would be done."
    if history.paused:
        yes = "Approved; the" if digest in history.approvals else "The"
        return f"{yes} run is paused: nothing is carried out until a person resumes it."
    if digest in history.approvals:
        return "Approved; being carried out."
    changed = [n for n, c in (("checkpoint", history.choice.checkpoint), ("spares", history.choice.spares)) if c]
    changed += ["nodes kept"] if history.choice.keep_nodes else []
    changed += [f"left out {spans_text(history.choice.skip_samples)}"] if history.choice.skip_samples else []
    by = f" As changed by a person: {', '.join(changed)}." if changed else ""
    why = f" ({why_asked(known)})" if why_asked(known) else ""
    return (f"Waiting for approval{why}." if waits(history, known) else "Being carried out.") + by


def swap_text(swaps: Swaps, history: History, incident: Incident, after: tuple[str, ...], layout: Layout | None) -> str:
    """Who takes which slot, and whether all groups are as before but for that; computed from both slot maps, never assumed."""
    moved = [f"{clean(to, 64)} takes slot {slot} of {clean(old, 64)}" for slot, old, to in swaps]
    text = ", ".join(moved) if len(moved) <= 4 else f"{number(len(moved))} slots change hands"
    before = next((a for a in history.attempts if a.number == incident.attempt), None)
    if layout is None or before is None or not swaps:
        return f"{text}." if swaps else "No slot changes hands."
    proof = prove_swap(layout, before.slots, after)
    if proof.faults or not proof.groups_same:
        return f"{text}. GROUPS DIFFER: {sentence('; '.join(proof.faults) or 'not the same places')}"
    places = "that one place" if len(proof.changed) == 1 else f"those {len(proof.changed)} places"
    return f"{text}: TP, PP and DP groups as before but for {places}."


def _acted(history: History, incident: Incident, known: Known) -> list[_Entry]:
    """What was stopped, barred, swapped and launched."""
    entries: list[_Entry] = []
    times = incident.times
    if times.stopped is not None:
        entries.append(_Entry(times.stopped, f"Attempt {incident.attempt} is down."))
    bars = {b.node: b.at for b in history.bars if b.incident == incident.number}
    told = [*incident.barred, *(n for n in bars if n not in incident.barred)]
    if told:
        at = next((bars[n] for n in told if n in bars), None)
        entries.append(_Entry(at, f"{names(told)} barred."))
    attempt = last_attempt(history, incident)
    if attempt and (incident.swaps or told):
        # A swap that is only planned is told with the plan.
        text = swap_text(incident.swaps, history, incident, attempt.slots, known.layout)
        entries.append(_Entry(attempt.intended_at, text))
    before = next((a for a in history.attempts if a.number == incident.attempt), None)
    fresh = [one for one in attempt.skip_samples if before is None or one not in before.skip_samples] if attempt else []
    if attempt and fresh:
        text = f"Left out from here on, by a person: {spans_text(tuple(fresh))}."
        entries.append(_Entry(attempt.intended_at, text))
    if times.relaunched is not None and attempt:
        entries.append(_Entry(times.relaunched, f"Attempt {attempt.number} launched."))
    return entries


def replay_text(replay: Replay) -> str:
    """How the replayed losses compare with the first pass."""
    if replay.compared == 0:
        return "No losses of a first pass to compare with."
    text = f"{count(replay.compared, 'loss', 'losses')} laid over the first pass: "
    if replay.differing:
        where = f", first at iteration {number(replay.first_differing)}" if replay.first_differing is not None else ""
        text += f"{number(replay.differing)} differ{where}, by {replay.worst:.2g} at most (relative)."
    else:
        text += "all equal." if replay.worst == 0 else f"all within {replay.worst:.2g} (relative)."
    if replay.data_differing is not None:
        text += f" The data differ from iteration {number(replay.data_differing)} on."
    return text


def _returned(history: History, incident: Incident) -> list[_Entry]:
    """Loaded, the first update, the old frontier passed."""
    times, attempt = incident.times, last_attempt(history, incident)
    entries: list[_Entry] = []
    if times.loaded is not None:
        text = "Loaded."
        counters = attempt.began if attempt and attempt.accepted_at is not None else None
        if counters:
            rate = f", learning rate {counters.lr:.4g}" if counters.lr is not None else ""
            skipped = f", skipped {number(counters.skipped)}" if counters.skipped else ""
            text += f" Samples {number(counters.samples)}, updates {number(counters.updates)}{skipped}{rate}."
        if attempt and attempt.accepted_at is not None and incident.checkpoint and not attempt.limited:
            text += " Places, digests, counters and next samples: as in the manifest."
        entries.append(_Entry(times.loaded, text))
    if times.next_good is not None:
        start = attempt.start_step + 1 if attempt else None
        text = f"First update{f', iteration {number(start)}' if start else ''}."
        if attempt and attempt.accepted_at is not None and attempt.limited:
            text += " Accepted on log lines and exits only (limited): digests and next samples could not be seen."
        entries.append(_Entry(times.next_good, text, "closed"))
    if incident.replay and times.caught_up is None:
        entries.append(_Entry(None, f"Probation: {replay_text(incident.replay)}"))
    if times.caught_up is not None:
        text = f"Old frontier passed (iteration {number(incident.frontier)})."
        text += f" {replay_text(incident.replay)}" if incident.replay else " No replay is on record."
        entries.append(_Entry(times.caught_up, text))
    return entries


def _cost(history: History, incident: Incident, known: Known) -> str:
    if last_attempt(history, incident) is None and not incident.closed:
        return ""
    steps, samples = redo(incident)
    parts = [f"{count(steps, 'iteration')} to redo"] if steps is not None else []
    parts += [f"{amount(samples)} samples read again"] if samples is not None else []
    down, times = lost_s(incident), incident.times
    if known.layout and down is not None:
        text = f"{number(known.layout.world)} ranks x {span(down)} down"
        if times.caught_up is not None and times.next_good is not None:
            text += f" and {span(times.caught_up - times.next_good)} of recomputation"
        parts.append(text)
    return f"Cost: {', '.join(parts)}." if parts else ""


def _spent(incident: Incident) -> str:
    parts = [f"{name} {minutes(seconds)}" for name, seconds in split(incident.times)]
    return f"Where the time went: {', '.join(parts)}." if parts else ""
