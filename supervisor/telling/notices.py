"""What wakes a person: three lines and a command, told once, and again while nobody answers. Pure; `courier.py` carries it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from policies.decisions import Continue, Recover, Wait
from policies.facts import FaultClass
from policies.reasons import Reason
from supervisor.telling.copies import restore_text
from supervisor.telling.incident_facts import Known, begin, redo, why_asked
from supervisor.telling.incident_story import incident_story
from supervisor.telling.plan_page import plan_text
from supervisor.telling.say import (
    SEEN_MAX,
    clean,
    clock,
    count,
    moment,
    names,
    number,
    plan_id,
    sentence,
    zone_name,
)
from supervisor.telling.story import run_story
from supervisor.telling.told import halt_key

if TYPE_CHECKING:
    from policies.brokensave import BrokenSave
    from policies.history import History, Incident
    from policies.ladder import Rung

What = Literal["plan", "halt", "warning", "paused", "reminder", "guard"]


NOT_DRAINED: Final = "warning:drain-refused:0"
"""The key of the notice that bars do not hold beyond this run; of the whole run, so of no attempt."""


@dataclass(frozen=True, slots=True)
class Notice:
    """`key` is the same for the same matter (History.told); `title` is the first line, `body` the lines after it.

    `plan`: the digest that a link leads to. `escalates`: it goes to those too who are called when nobody answers.
    """

    key: str
    what: What
    run: str
    title: str
    body: str
    plan: str = ""
    escalates: bool = False

    @property
    def text(self) -> str:
        """All lines, as a person reads them."""
        return f"{self.title}\n{self.body}\n"

    def linked(self, console: str) -> Notice:
        """With a line that leads to the run, and to the plan, on the page of a console; as it is without a console."""
        if not console:
            return self
        place = f"{console.rstrip('/')}/#run={quote(self.run, safe='')}" + (f"&plan={self.plan}" if self.plan else "")
        *lines, command = self.body.split("\n")
        return replace(self, body="\n".join([*lines, place, command]))


IN_THE_NEXT_JOB: Final = frozenset({Reason.JOB_ENDS, Reason.NODE_DRAINED, Reason.SPARES_LOW})
"""Reasons that the next job is the answer to."""


def warning(history: History, decision: Continue | Wait, known: Known | None = None) -> Notice | None:
    """The notice of what will become a fault if nobody looks, or of what keeps a stopped run from going on; once an attempt."""
    known, run = known or Known(), clean(history.run, 64)
    number = history.attempt.number if history.attempt else 0
    at = f" at {_when(known.now, known)}" if known.now is not None else ""
    waits = isinstance(decision, Wait)
    state = "stopped, and it can't go on" if waits else "running, but look at it soon"
    title = f"relight {run}: {state} ({decision.reason}){at}"
    so = (
        "It looks again every few seconds, and goes on by itself." if waits else "Nothing is stopped or deleted for it."
    )
    if decision.reason in IN_THE_NEXT_JOB and history.mode != "observe":
        so = f"Nothing is done for it now. To save and go on in the next job: relight stop {run} --next-job"
    body = f"{sentence(decision.text)}\n{so}\nRead: relight runbook {decision.reason}"
    key = f"{'waits' if waits else 'warning'}:{decision.reason}:{number}"
    return None if key in history.told else Notice(key, "warning", run, title, body)


def not_drained(history: History, known: Known | None = None) -> Notice | None:
    """The notice that nodes are barred in this run alone, once a run: what stands instead, and what to ask for."""
    known, run = known or Known(), clean(history.run, 64)
    if not history.drain_refused or NOT_DRAINED in history.told:
        return None
    nodes = names(sorted(b.node for b in history.bars if b.returned_at is None)) or "a node"
    title = f"relight {run}: the cluster does not keep others from {nodes} (drain-refused)"
    so = "This run does not use it again; other jobs may get it. Ask the administrators to drain it, or for operator rights."
    body = f"{sentence(history.drain_refused, SEEN_MAX)}\n{so}\nRead: relight runbook drain-refused"
    return Notice(NOT_DRAINED, "warning", run, title, body)


def save_broken(history: History, found: BrokenSave | None, known: Known | None = None) -> Notice | None:
    """The notice that the newest save is broken, once an attempt: a fault would find that out when it is too late."""
    known, run = known or Known(), clean(history.run, 64)
    if found is None:
        return None
    key = f"warning:save-broken:{found.save.attempt}"
    at = f" at {_when(known.now, known)}" if known.now is not None else ""
    title = f"relight {run}: the newest save is broken, look at it soon (save-broken){at}"
    why = clean("; ".join(found.save.reasons[:2]), SEEN_MAX) or "no reason was left"
    seen = sentence(f"{clean(found.save.id, 64)}: {why}")
    body = f"{seen}\n{_way_back(found.back)} Nothing is stopped for it.\nRead: relight runbook save-broken"
    return None if key in history.told else Notice(key, "warning", run, title, body)


def _way_back(rung: Rung) -> str:
    best = rung.checkpoint
    if best is not None:
        where = " in the archive" if best.location == "archive" else ""
        return f"A fault now goes back to {clean(best.id, 64)}{where}."
    if rung.from_nothing:
        return "A fault now goes back to the begin: no save was ever completed."
    if rung.unseen:
        return "The store has no save to go back to, and the archive can't be read."
    return "A fault now halts the run: no completed save can be used."


def paused(history: History, known: Known | None = None) -> Notice | None:
    """The notice of a fault in a run that is paused, so that nothing is done about it; once an incident.

    None too where the plan was told before the pause: whoever has paused it then knows.
    """
    known, run, incident = known or Known(), clean(history.run, 64), history.incident
    if incident is None or f"plan:{history.decision_digest}" in history.told:
        return None
    key = f"paused:{incident.number}"
    title = f"relight {run}: stopped at {_when(begin(incident), known)}, and the run is paused"
    body = f"{_earliest(incident, known)}\nNothing is stopped, barred or started until it is resumed.\nrelight resume {run}"
    return None if key in history.told else Notice(key, "paused", run, title, body)


def notice(history: History, what: What, known: Known | None = None, hold_s: float = 0.0) -> Notice | None:
    """The notice for an open plan or for a halt; None when there is no such thing, or it was told already.

    `hold_s`: how long a halt keeps the allocation, seconds (rules.hold_s).
    """
    return (_plan if what == "plan" else _halt)(history, known or Known(), hold_s)


def page(history: History, what: What, known: Known | None = None) -> str:
    """What stands on the command's standard input: the open plan on a page, the story of what halted, else of the run."""
    known = known or Known()
    try:
        if what == "plan":
            return plan_text(history, known)
        if history.halted and history.halted.incident is not None:
            return incident_story(history, history.halted.incident, known)
        if what == "paused" and history.incident is not None:
            return incident_story(history, history.incident.number, known)
    except LookupError:
        pass  # a first start has no incident: the run's own story is told
    return run_story(history, known)


def _when(at: float | None, known: Known) -> str:
    seen = moment(at, known.zone)
    return f"{clock(at, known.zone, known.now)} {zone_name(seen)}" if seen else "a time that is not known"


def _plan(history: History, known: Known, _hold_s: float) -> Notice | None:
    decision, digest = history.decision, history.decision_digest
    if not isinstance(decision, Recover) or digest is None or digest in history.approvals | history.refused:
        return None
    if f"plan:{digest}" in history.told:
        return None
    run = clean(history.run, 64)
    incident = next((i for i in history.incidents if i.number == decision.incident), None)
    watching = history.mode == "observe"
    asked = f": {why_asked(known)}" if why_asked(known) else ""
    if incident is None:
        title = f"relight {run}: ready to start" + ("" if watching else ", waiting for you")
        seen = f"Attempt {decision.attempt} is not launched yet ({decision.reason})"
    else:
        # A pure stall has not been stopped by anybody: what it occupies is still held while we wait.
        state = "stalled" if decision.fault is FaultClass.STALL else "stopped"
        title = f"relight {run}: {state} at {_when(begin(incident), known)}"
        title += ", only observing" if watching else f", waiting for you{asked}"
        seen = _earliest(incident, known)
    command = f"relight plan {run}" if watching else f"relight approve {run} --plan {plan_id(digest)}"
    effects = _effects(decision, incident, digest, known)
    return Notice(f"plan:{digest}", "plan", run, title, f"{seen}\n{effects}\n{command}", digest)


def _earliest(incident: Incident, known: Known) -> str:
    """The earliest error in one line, and what followed from it."""
    diagnosis = incident.diagnosis
    first = diagnosis.first if diagnosis else ()
    if not diagnosis or not first:
        return f"{clean(incident.trouble.text) or 'The run stopped'}; earliest error not found"
    one = first[0]
    place = " ".join(
        [clean(one.node, 64) if one.node else "node unknown", *([f"rank {one.rank}"] if one.rank is not None else [])]
    )
    at = f" at {clock(one.wall, known.zone, begin(incident))}" if moment(one.wall, known.zone) else ""
    others = f"; {len(first) - 1} more that may be earlier" if len(first) > 1 else ""
    after = f"; then {clean(diagnosis.cascade, 120).rstrip('.')}" if diagnosis.cascade else ""
    return f"{place}: {clean(one.text, 160).rstrip('.')}{at}{others}{after}"


def _effects(decision: Recover, incident: Incident | None, digest: str, known: Known) -> str:
    """What the plan would do: barred, swapped, from where, how much again."""
    parts = [f"bar {names(decision.bars)}"] if decision.bars else []
    moved = [f"spare {clean(to, 64)} takes slot {slot}" for slot, _, to in decision.swaps]
    parts += [names(moved)] if moved else [] if decision.checkpoint is None and incident is None else ["no swap"]
    if decision.checkpoint:
        state = next((c for c in known.checkpoints if c.id == decision.checkpoint), None)
        saved = f"{clock(state.saved_at, known.zone, known.now)}, " if state and state.saved_at is not None else ""
        parts.append(
            f"restart from iteration {number(decision.checkpoint_step)} ({saved}{clean(decision.checkpoint, 64)})"
        )
        parts += [f"which comes from the archive ({restore_text(decision.restores)})"] if decision.restores else []
    else:
        parts.append("start from nothing")
    steps = decision.redo_steps
    parts += [f"{count(steps, 'iteration')} to redo"] if steps else []
    samples = redo(incident)[1] if incident and incident.checkpoint == decision.checkpoint else None
    parts += [f"{number(samples)} samples to read again"] if samples else []
    return f"Plan {plan_id(digest)}: {', '.join(parts)}"


def _halt(history: History, known: Known, hold_s: float) -> Notice | None:
    halted = history.halted
    if halted is None or halt_key(halted) in history.told:
        return None
    run = clean(history.run, 64)
    until = (
        f" Allocation kept until {_when(halted.at + hold_s, known)}." if hold_s > 0 and math.isfinite(hold_s) else ""
    )
    barred = history.barred(halted.at)
    body = (
        sentence(halted.seen, SEEN_MAX) or "What was seen is not on record.",
        f"Lifted by: {sentence(halted.lifts) or 'a person.'} Barred: {names(sorted(barred))}.{until}",
        f'Read: relight runbook {halted.reason}     Then: relight resume {run} --because "..."',
    )
    title = f"relight {run}: halted at {_when(halted.at, known)}, not restarting"
    return Notice(halt_key(halted), "halt", run, title, "\n".join(body))
