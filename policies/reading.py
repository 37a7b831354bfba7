"""Whose agents may read a save now, and whether anything trains beside it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.facts import UNKNOWN
from policies.spares import why_not

if TYPE_CHECKING:
    from policies.facts import View
    from policies.history import History, Incident


@dataclass(frozen=True, slots=True)
class MayRead:
    """`nodes`: their agents may read. `trains`: an attempt runs, so that the limit of speed holds."""

    nodes: frozenset[str]
    trains: bool


def may_read(history: History, view: View, now: float) -> MayRead:
    """While an attempt runs its idle hot spares; when none does, every healthy node that nobody suspects.

    A node that may be what stopped the run must not judge what the next attempt starts from.
    """
    attempt = history.attempt
    trains = attempt is not None and attempt.closed_at is None
    if view.nodes is UNKNOWN:
        return MayRead(frozenset(), trains)
    slots = attempt.slots if attempt is not None and trains else ()
    suspects = _suspects(history.incident)
    barred = history.barred(now)
    usable = (n.name for n in view.nodes.values() if why_not(n, slots, barred) is None)
    return MayRead(frozenset(usable) - suspects, trains)


def _suspects(incident: Incident | None) -> frozenset[str]:
    """Nodes that something points at in the open incident."""
    if incident is None:
        return frozenset()
    named = incident.diagnosis.suspects if incident.diagnosis else ()
    return frozenset((*named, *incident.trouble.nodes, *incident.barred))
