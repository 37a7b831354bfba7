"""What the stories count and look up: spans, what is done again, whose turn it is. Pure; seconds unless said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies.facts import EMPTY, Recover
from supervisor.say import clean, names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from policies.facts import Attempt, CheckpointState, Counters, History, Incident, Times
    from policies.layout import Layout


@dataclass(frozen=True, slots=True)
class Known:
    """What a story can use beside the History; each part may be missing.

    `plans`: incident -> digest of the plan that was carried out. `loaded`: attempt -> the counters that every rank
    showed after its load. `now`: wall seconds, for spans that have not ended.
    """

    zone: tzinfo | None = None
    layout: Layout | None = None
    checkpoints: tuple[CheckpointState, ...] = ()
    plans: Mapping[int, str] = field(default_factory=lambda: EMPTY)
    loaded: Mapping[int, Counters] = field(default_factory=lambda: EMPTY)
    now: float | None = None


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


def waits(history: History) -> bool:
    """Does an open plan wait for a person, as far as the History tells? A gate may know more reasons to ask."""
    decision, digest = history.decision, history.decision_digest
    if not isinstance(decision, Recover) or digest is None or digest in history.approvals | history.refused:
        return False
    return history.mode == "approve" or (history.mode == "auto" and decision.asks)


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


def split(times: Times) -> list[tuple[str, float]]:
    """Stretches of the incident in seconds, in order. One whose end is not known is told together with the next."""
    marks = (
        ("noticing", times.detected),
        ("keeping the evidence", times.evidence),
        ("deciding", times.decided),
        ("waiting for approval", times.approved),
        ("swap and launch", times.relaunched),
        ("loading", times.loaded),
        ("first update", times.next_good),
        ("recomputation", times.caught_up),
    )
    parts: list[tuple[str, float]] = []
    since, open_names = times.last_good, []
    for name, at in marks:
        if at is None:
            # Nobody was asked: that is no stretch of its own, where the others are only unseen.
            open_names += [name] if name != "waiting for approval" else []
            continue
        if since is not None:
            parts.append((" and ".join([*open_names, name]), max(0.0, at - since)))
        since, open_names = at, []
    return parts
