"""The open plan on one page, for the person who says yes or no to it; and the same facts for programs. Pure.

The page is read on a phone: short lines that each stand for themselves, the commands last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from policies.decisions import Recover, Restores
from policies.facts import FaultClass, Finding, Rejected
from policies.history import Bar
from policies.layout import prove_swap
from policies.rules import Rules
from policies.skipping import spans_text
from supervisor.gate import may_only_be_slow
from supervisor.telling.copies import restore_text
from supervisor.telling.incident_facts import Known, begin, waits
from supervisor.telling.incident_story import checkpoint_text, plan_standing, rejected_text, swap_text, where
from supervisor.telling.say import amount, clean, clock, count, moment, names, number, plan_id, sentence, span, stamp
from supervisor.telling.told import told_lines

if TYPE_CHECKING:
    from policies.facts import CheckpointState
    from policies.history import History, Incident

SHOWN = 3
"""So many errors, rejected saves and nodes are told in full; of more, their number. The page must stay one page."""
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Past:
    """What the run remembers of a node: its bars, and the other incidents in which it was a suspect or barred."""

    node: str
    bars: tuple[Bar, ...]
    incidents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Everything that the page says. Seconds, samples, rank-hours; None where a part is not known."""

    run: str
    digest: str
    standing: str
    waits: bool
    incident: int
    reason: str
    fault: str
    began_at: float
    open_s: float | None
    first: tuple[Finding, ...]
    cascade: str
    trouble: str
    evidence: str
    suspects: tuple[str, ...]
    confidence: float | None
    past: tuple[Past, ...]
    stops: int | None
    a_no_stops: bool
    bars: tuple[str, ...]
    bars_why: str
    swaps: tuple[tuple[int, str, str], ...]
    swap: str
    groups_same: bool | None
    attempt: int
    checkpoint: str | None
    checkpoint_step: int
    rejected: tuple[Rejected, ...]
    restores: Restores | None
    redo_iterations: int
    redo_samples: int | None
    first_pass_s: float | None
    lost_rank_hours: float | None
    rank_hours_a_minute: float | None
    commands: dict[str, str]


def plan_text(history: History, known: Known | None = None) -> str:
    """The open plan as a page. LookupError (one line for people) when none is open."""
    known = known or Known()
    facts, (decision, incident) = plan_facts(history, known), _open(history)
    lines = [
        f"{clean(facts.run, 64)}: plan {plan_id(facts.digest)}. {facts.standing}",
        _since(facts, known),
        *told_lines(history, known),
        "",
        *_seen(facts, incident, known),
        *_nodes(facts, known),
        "",
        *_effects(facts, decision, known),
        *_price(facts),
        "",
        *_answers(facts),
    ]
    return "\n".join(lines) + "\n"


def plan_json(history: History, known: Known | None = None) -> dict[str, Any]:
    """The same for programs. Text is as it was seen, not cleaned. LookupError when no plan is open."""
    return asdict(plan_facts(history, known or Known()))


def plan_facts(history: History, known: Known) -> PlanFacts:
    """What the page says, before it is put into words. LookupError when no plan is open."""
    decision, incident = _open(history)
    digest, diagnosis = history.decision_digest or "", incident.diagnosis
    start = begin(incident)
    open_s = None if known.now is None else max(0.0, known.now - start)
    world = known.layout.world if known.layout else None
    suspects = diagnosis.suspects if diagnosis else ()
    told = dict.fromkeys((*suspects, *decision.bars, *(new for _, _, new in decision.swaps)))
    return PlanFacts(
        run=history.run,
        digest=digest,
        standing=plan_standing(history, digest, known),
        waits=waits(history, known),
        incident=incident.number,
        reason=decision.reason.value,
        fault=incident.fault.value,
        began_at=start,
        open_s=open_s,
        first=diagnosis.first if diagnosis else (),
        cascade=diagnosis.cascade if diagnosis else "",
        trouble=incident.trouble.text,
        evidence=incident.evidence,
        suspects=suspects,
        confidence=diagnosis.confidence if diagnosis else None,
        past=tuple(past_of(history, incident, node) for node in told),
        stops=decision.stops,
        a_no_stops=decision.stops is not None and not may_only_be_slow(history, _rules(history)),
        bars=decision.bars,
        bars_why=decision.text,
        swaps=decision.swaps,
        swap=swap_text(decision.swaps, history, incident, decision.slots, known.layout),
        groups_same=_groups_same(history, decision, incident, known),
        attempt=decision.attempt,
        checkpoint=decision.checkpoint,
        checkpoint_step=decision.checkpoint_step,
        rejected=decision.rejected,
        restores=decision.restores,
        redo_iterations=decision.redo_steps,
        redo_samples=_samples(decision, incident),
        first_pass_s=_first_pass(decision, incident, known.checkpoints),
        lost_rank_hours=None if world is None or open_s is None else world * open_s / HOUR_S,
        rank_hours_a_minute=None if world is None else world * 60 / HOUR_S,
        commands=_commands(history, digest, decision, suspects),
    )


def _open(history: History) -> tuple[Recover, Incident]:
    decision, run = history.decision, clean(history.run, 64)
    if isinstance(decision, Recover) and history.decision_digest:
        for incident in history.incidents:
            if incident.number == decision.incident:
                return decision, incident
    raise LookupError(f"{run}: no plan is open. See: relight status {run}")


def _rules(history: History) -> Rules:
    """The profile in force, as the journal has it; the one that a run has by default where it has none."""
    return Rules.model_validate_json(history.rules) if history.rules else Rules()


def past_of(history: History, incident: Incident, node: str) -> Past:
    """What the run remembers of a node beside one incident."""
    earlier = tuple(
        other.number
        for other in history.incidents
        if other.number != incident.number
        and node in {*other.barred, *(other.diagnosis.suspects if other.diagnosis else ()), *other.trouble.nodes}
    )
    return Past(node, tuple(b for b in history.bars if b.node == node), earlier)


def _groups_same(history: History, decision: Recover, incident: Incident, known: Known) -> bool | None:
    """Proved, not assumed; None where the layout or the slot map before is not at hand."""
    before = next((a for a in history.attempts if a.number == incident.attempt), None)
    return prove_swap(known.layout, before.slots, decision.slots).good if known.layout and before else None


def _samples(decision: Recover, incident: Incident) -> int | None:
    """Samples that are read again. A frontier of 0 samples after some iteration means that they were not counted."""
    if not incident.frontier_samples:
        return 0 if not incident.frontier else None
    if decision.checkpoint is None:
        return incident.frontier_samples
    return max(0, incident.frontier_samples - decision.start.samples) if decision.start else None


def _first_pass(decision: Recover, incident: Incident, saves: tuple[CheckpointState, ...]) -> float | None:
    """How long the work took the first time: from the save to the last good update, when no stop lies in between."""
    good = incident.times.last_good
    save = next((c for c in saves if c.id == decision.checkpoint), None)
    if good is None or save is None or save.saved_at is None or save.attempt != incident.attempt:
        return None
    return good - save.saved_at if good >= save.saved_at else None


def _commands(history: History, digest: str, decision: Recover, suspects: tuple[str, ...]) -> dict[str, str]:
    """What a person can type now. In observe mode nothing would come of it; an answered plan can't be answered again."""
    run, plan = clean(history.run, 64), plan_id(digest)
    if history.mode == "observe" or digest in history.refused:
        return {}
    approve = {"approve": f"relight approve {run} --plan {plan}"} if digest not in history.approvals else {}
    barred = [node for node in (*suspects, *decision.bars) if node in decision.bars]
    keep = {"keep_node": f"relight plan {run} --keep-node {clean(barred[0], 64)}"} if barred else {}
    spare = {"spare": f"relight plan {run} --spare NODE"} if decision.swaps else {}
    return {
        **approve,
        "refuse": f'relight refuse {run} --plan {plan} --because "..."',
        "checkpoint": f"relight plan {run} --checkpoint ID",
        "skip_samples": f"relight plan {run} --skip-samples FIRST:END",
        **spare,
        **keep,
        **({"lift": f"relight resume {run}"} if history.paused else {"hold": f'relight pause {run} --because "..."'}),
        "explain": f"relight explain {run} {decision.incident}",
        "runbook": f"relight runbook {decision.reason}",
    }


# --- in words ------------------------------------------------------------------------------------------------------


def _since(facts: PlanFacts, known: Known) -> str:
    state = "Stalled" if facts.fault == FaultClass.STALL.value and facts.stops is not None else "Stopped"
    ago = f", {span(facts.open_s)} ago" if facts.open_s is not None else ""
    return f"Incident {facts.incident} ({facts.reason}). {state} at {stamp(facts.began_at, known.zone)}{ago}."


def _seen(facts: PlanFacts, incident: Incident, known: Known) -> list[str]:
    """The earliest error, what followed, and where the evidence lies."""
    lines = []
    for finding in facts.first[:SHOWN]:
        at = moment(finding.wall, known.zone)
        when = clock(finding.wall, known.zone, facts.began_at) if at else "time unknown"
        lines.append(f"{when} {where(finding)}: {sentence(finding.text)}")
    if len(facts.first) == 1:
        lines = [f"Earliest error: {lines[0]}"]
    elif lines:
        more = f" {number(len(facts.first) - SHOWN)} more." if len(facts.first) > SHOWN else ""
        lines = [f"Earliest error: one of {len(facts.first)}; the clocks cannot say which was first.{more}", *lines]
    else:
        lines = ["Earliest error: not found." if incident.diagnosis else "Earliest error: not yet known."]
    lines.append(f"Seen: {sentence(facts.trouble) or 'the run stopped.'}")
    lines += [f"Then: {sentence(facts.cascade)}"] if facts.cascade else []
    folder = f"incidents/{facts.incident:04d}/"
    if facts.evidence:
        lines.append(f"Evidence: {clean(facts.evidence).rstrip('.')}; in {folder}.")
    elif incident.times.evidence is not None:
        lines.append(f"Evidence: in {folder}.")
    else:
        lines.append("Evidence: not kept yet.")
    return lines


def _nodes(facts: PlanFacts, known: Known) -> list[str]:
    """Who is blamed, and what is known of these nodes from before."""
    sure = f" (confidence {facts.confidence:.2f})" if facts.confidence is not None else ""
    lines = [f"Suspect: {names(facts.suspects)}{sure}." if facts.suspects else "Suspect: nobody can be named."]
    newcomers = {new for _, _, new in facts.swaps}
    told = [past for past in facts.past if past.node not in newcomers or past.bars or past.incidents]
    lines += [past_text(past, known) for past in told[:SHOWN]]
    lines += [f"And {count(len(told) - SHOWN, 'node')} more: see --json."] if len(told) > SHOWN else []
    return lines


def past_text(past: Past, known: Known) -> str:
    """The same in a sentence."""
    parts = []
    for bar in past.bars[-2:]:
        until = "for good" if bar.until is None else f"until {stamp(bar.until, known.zone)}"
        until += f" (lifted by {clean(bar.lifted_by, 64)})" if bar.lifted_by else ""
        back = f", back since {stamp(bar.returned_at, known.zone)}" if bar.returned_at is not None else ""
        parts.append(f"barred {stamp(bar.at, known.zone)} {until}{back} (incident {bar.incident}, {bar.reason})")
    if len(past.bars) > len(parts):
        parts.append(f"{count(len(past.bars) - len(parts), 'bar')} before that")
    if past.incidents:
        word = "incident" if len(past.incidents) == 1 else "incidents"
        parts.append(f"part of {word} {names([str(n) for n in past.incidents], 8)}")
    return f"{clean(past.node, 64)}: {'; '.join(parts) if parts else 'no earlier bar or incident'}."


def _effects(facts: PlanFacts, decision: Recover, known: Known) -> list[str]:
    """What is done when the answer is yes, in order."""
    lines = []
    if facts.stops is not None:
        alive = "" if decision.died else " Nothing of it has died"
        lines.append(f"Stop: attempt {facts.stops}, fenced first.{alive}{'.' if alive else ''}")
    why = f" ({clean(facts.bars_why).rstrip('.')})" if facts.bars_why else ""
    lines.append(f"Bar: {names(facts.bars) if facts.bars else 'nobody'}{why}.")
    lines.append(f"Swap: {facts.swap}")
    back = "from nothing; no save was ever completed"
    if facts.checkpoint:
        back = f"from {checkpoint_text(facts.checkpoint, facts.checkpoint_step, known, facts.began_at)}"
    if decision.restores:
        lines.append(
            f"Restore: {clean(facts.checkpoint or '', 64)} comes from the archive first, {restore_text(decision.restores)}."
        )
    lines.append(f"Start: attempt {facts.attempt} {back}.")
    lines += [f"Left out: {spans_text(decision.skip_samples)}."] if decision.skip_samples else []
    lines += [rejected_text(r) for r in facts.rejected[:SHOWN]]
    left = len(facts.rejected) - SHOWN
    lines += [f"Rejected: {count(left, 'save')} more."] if left > 0 else []
    return lines


def _price(facts: PlanFacts) -> list[str]:
    """What is done again, what is lost, and what waiting costs."""
    samples = "samples unknown" if facts.redo_samples is None else f"{amount(facts.redo_samples)} samples"
    took = f"; the first pass took {span(facts.first_pass_s)}" if facts.first_pass_s is not None else ""
    lines = [f"To redo: {count(facts.redo_iterations, 'iteration')}, {samples}{took}."]
    if facts.rank_hours_a_minute is None:
        return [*lines, "Lost: unknown; the layout is not at hand."]
    rate = f"{facts.rank_hours_a_minute:,.1f} more a minute of waiting"
    lost = "unknown" if facts.lost_rank_hours is None else f"{facts.lost_rank_hours:,.1f}"
    return [*lines, f"Lost so far: {lost} GPU-hours (a GPU a rank); {rate}."]


def _answers(facts: PlanFacts) -> list[str]:
    """What a no means, and the commands."""
    lines, do = [], facts.commands
    if "refuse" in do:
        left = "is stopped" if facts.a_no_stops else "is left as it stands"
        attempt = f"attempt {facts.stops} {left}, " if facts.stops is not None else ""
        lines.append(f"A no halts the run: {attempt}nobody is barred, nothing is started until relight resume.")
    lines += [f"Yes: {do['approve']}"] if "approve" in do else []
    lines += [f"No: {do['refuse']}"] if "refuse" in do else []
    lines += [f"Change: {do[key]}" for key in ("checkpoint", "spare", "keep_node", "skip_samples") if key in do]
    lines += [f"Hold: {do['hold']}; it stays open, and nothing is done until relight resume."] if "hold" in do else []
    lines += [f"Held: an approved plan is carried out after {do['lift']}"] if "lift" in do else []
    lines += [f"Read: {do['explain']}; {do['runbook']}"] if "explain" in do else []
    return lines or ["There is nothing to answer."]
