"""What a rule may look at, and what several rules ask of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from policies import spares
from policies.decisions import Halt
from policies.facts import UNKNOWN, AttemptView, CheckpointState, View
from policies.history import History, Incident
from policies.layout import Layout
from policies.reasons import Reason
from policies.rules import Rules

LOOK_AGAIN_S = 5.0
"""How soon a part of the world that could not be read is looked at again."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a rule may look at."""

    history: History
    view: View
    layout: Layout
    rules: Rules
    now: float

    @property
    def shown(self) -> AttemptView | None:
        """The newest attempt as the world shows it."""
        attempt, shown = self.history.attempt, self.view.attempt
        return shown if attempt and shown and shown.number == attempt.number else None

    @property
    def own_incident(self) -> Incident | None:
        """The open incident, when it is one of the newest attempt: the one that the next attempt is to end."""
        attempt, incident = self.history.attempt, self.history.incident
        return incident if attempt and incident and incident.attempt == attempt.number else None


def question(history: History, rules: Rules, now: float) -> spares.Asked | None:
    """What the spares are asked because of the open incident: when it is opened, by each new controller, and when a halt is
    lifted. None while no incident is open.
    """
    incident = history.incident
    if incident is None:
        return None
    since = max(incident.times.confirmed or 0.0, history.listens_since, history.resumed_at or 0.0)
    return spares.Asked(incident.number, since + rules.node.check_s, rules.node.check_s, now)


def everywhere(s: Situation) -> tuple[CheckpointState, ...]:
    """The saves in the store, and the copies in the archive as far as it can be seen."""
    assert s.view.checkpoints is not UNKNOWN  # noqa: S101 - wait_for_sight has answered before
    return s.view.checkpoints + (() if s.view.archive is UNKNOWN else s.view.archive)


def all_clean(s: Situation) -> bool:
    """Has the training ended? Ranks that were asked to stop end well too: when the run goes on, that is no end."""
    return s.shown is not None and s.shown.number != s.history.reopened and s.shown.ended_well(s.layout.world)


def halt(s: Situation, incident: Incident | None, reason: Reason, seen: str, lifts: str) -> Halt:
    """A person is needed: what was seen, and what would lift it."""
    attempt = s.history.attempt
    return Halt(reason, seen, lifts, attempt.number if attempt else None, incident.number if incident else None)
