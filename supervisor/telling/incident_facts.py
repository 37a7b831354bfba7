"""What the stories count and look up: spans, what is done again, whose turn it is. Pure; seconds unless said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies import ledger
from policies.decisions import Recover
from supervisor.telling.say import clean, names

if TYPE_CHECKING:
    from datetime import tzinfo

    from policies.facts import CheckpointState
    from policies.history import Attempt, History, Incident, Times
    from policies.layout import Layout


@dataclass(frozen=True, slots=True)
class Known:
    """What a story can use beside the History; each part may be missing.

    `now`: wall seconds, for open spans.
    `held`: why the gate holds the open plan for a person; empty when it does not, or that is not at hand.
    `unwatched`: no controller is alive; `unwatched_since`: when the last one wrote, wall seconds; `take_over`: the command that
    starts another.
    """

    zone: tzinfo | None = None
    layout: Layout | None = None
    checkpoints: tuple[CheckpointState, ...] = ()
    now: float | None = None
    held: str = ""
    unwatched: bool = False
    unwatched_since: float | None = None
    take_over: str = ""


def find_incident(history: History, wanted: int) -> Incident:
    """The incident of that number. LookupError (one line for people) when there is none."""
    for incident in history.incidents:
        if incident.number == wanted:
            return incident
    have = f"it has {names([str(i.number) for i in history.incidents[-4:]])}" if history.incidents else "it has none"
    raise LookupError(f"{clean(history.run, 64)} has no incident {wanted}; {have}")


def begin(incident: Incident) -> float:
    """When the incident began: the last good update; where that is unknown, when the stop was seen."""
    good = incident.times.last_good
    return incident.trouble.at if good is None else good


def lost_s(incident: Incident) -> float | None:
    """Seconds from the last good update to the next one; None while, or where, one of them is not known."""
    good, following = incident.times.last_good, incident.times.next_good
    return None if good is None or following is None else following - good


def last_attempt(history: History, incident: Incident) -> Attempt | None:
    """The newest attempt that was to end this incident."""
    own = [a for a in history.attempts if a.incident == incident.number]
    return own[-1] if own else None


def plan_of(history: History, incident: Incident) -> str | None:
    """The digest of the open plan of an incident, else of the one that was carried out; None when there was none."""
    if isinstance(history.decision, Recover) and history.decision.incident == incident.number:
        return history.decision_digest
    return dict(history.plans).get(incident.number) or None


def waits(history: History, known: Known) -> bool:
    """Does an open plan wait for a person? The gate's word counts; without it, what the History tells."""
    decision, digest = history.decision, history.decision_digest
    if not isinstance(decision, Recover) or digest is None or digest in history.approvals | history.refused:
        return False
    if history.paused:
        return False  # nothing is carried out then, approved or not
    asked = decision.incident is not None and history.mode == "approve"
    return bool(known.held) or asked or (history.mode == "auto" and decision.asks)


def why_asked(known: Known) -> str:
    """Why a person is asked, for a text that says already that one is; empty in mode approve, where one always is."""
    why = clean(known.held).removeprefix("waits for a person").lstrip(": ")
    return "" if why == "(mode approve)" else why


def redo(incident: Incident) -> tuple[int | None, int | None]:
    """Iterations and samples to do again; None where a counter is missing. From nothing, all of them."""
    if incident.times.decided is None:
        return None, None
    if not incident.checkpoint:
        return incident.frontier, incident.frontier_samples or None
    steps = None if incident.checkpoint_step is None else max(0, incident.frontier - incident.checkpoint_step)
    # 0 samples beside a checkpoint means that its counters are not known: a save is made after at least one step.
    samples = incident.frontier_samples - incident.checkpoint_samples if incident.checkpoint_samples else None
    return steps, None if samples is None or samples < 0 else samples


PARTS = (
    ("noticing", "noticing"),
    ("evidence", "keeping the evidence"),
    ("approval", "waiting for approval"),
    ("stop_and_launch", "stop and launch"),
    ("loading", "loading"),
    ("first_update", "first update"),
    ("redo", "recomputation"),
)


def split(times: Times) -> list[tuple[str, float]]:
    """Where the time went, in seconds and in order; parts that took none, or are not known, are left out."""
    parts = ledger.split(times)
    return [(name, seconds) for field_, name in PARTS if (seconds := getattr(parts, field_)) > 0]
