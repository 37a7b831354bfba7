"""Every decision of a journal made again, from the journal alone: as it was, and as another profile would have it. Pure.

Each decision stands for itself: what another profile would have led to afterwards is not told, because nobody has seen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from policies.decide import decide
from policies.decisions import Decision, Recover
from policies.history import History
from policies.layout import Layout
from policies.rules import Rules
from supervisor.actions import Launch
from supervisor.fold import fold
from supervisor.gate import Held, gate
from supervisor.journal.entries import Decided, Looked, RunStarted, Stamped
from supervisor.looked import Look, view_of
from supervisor.plan import plan


class NotReplayableError(Exception):
    """The journal does not hold what a decision was made from; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Again:
    """One decision of the journal. `differs`: the fields that are not the same when it is made again, empty when all are."""

    number: int  # of its entry
    at: float
    was: Decision
    now: Decision
    was_done: str
    now_done: str
    differs: tuple[str, ...]

    @property
    def same(self) -> bool:
        """The same decision, and it would be carried out in the same way."""
        return not self.differs and self.was_done == self.now_done


def replay(journal: Iterable[Stamped], other: Rules | None = None) -> Iterator[Again]:
    """Make each journaled decision again, under its own rules or under `other`. Raises NotReplayableError."""
    history, layout = History(), None
    seen: tuple[Look, History] | None = None
    for one in journal:
        if isinstance(one.entry, RunStarted):
            layout = Layout(one.entry.tp, one.entry.pp, one.entry.dp, one.entry.ranks_per_node)
        if isinstance(one.entry, Looked):
            seen = (one.entry.look, history)
        elif isinstance(one.entry, Decided):
            if seen is None or layout is None:
                raise NotReplayableError(f"entry {one.number}: what it was decided from is not in this journal")
            yield _again(one, one.entry.decision, seen[1], seen[0], layout, other)
            seen = None
        history = fold(history, one)


def _again(one: Stamped, was: Decision, history: History, look: Look, layout: Layout, other: Rules | None) -> Again:
    own = _own_rules(one, history)
    rules = other or own
    under = history if other is None else replace(history, mode=other.mode)
    now = decide(under, view_of(look, layout.world), layout, rules, one.at)
    return Again(one.number, one.at, was, now, _done(was, history, own), _done(now, under, rules), _differing(was, now))


def _own_rules(one: Stamped, history: History) -> Rules:
    if not history.rules:
        raise NotReplayableError(f"entry {one.number}: the journal does not say which rules were in force")
    try:
        return Rules.model_validate_json(history.rules)
    except ValueError as error:
        raise NotReplayableError(f"entry {one.number}: its rules cannot be understood by this version") from error


def _done(decision: Decision, history: History, rules: Rules) -> str:
    """Would the gate let its last step pass? In words; empty for what starts nothing."""
    if not isinstance(decision, Recover):
        return ""
    launch = next(a for a in plan(decision, history, rules) if isinstance(a, Launch))
    permission = gate(launch, decision, history, rules)
    if not isinstance(permission, Held):
        return "carried out"
    return "asks a person" if permission.asks else "not carried out"


def _differing(was: Decision, now: Decision) -> tuple[str, ...]:
    if type(was) is not type(now):
        return ("kind",)
    return tuple(f.name for f in fields(was) if getattr(was, f.name) != getattr(now, f.name))


def told(decision: Decision) -> str:
    """Recover (node-lost)."""
    return f"{decision.kind} ({decision.reason})"


def as_json(one: Again) -> dict[str, Any]:
    """One decision for programs."""
    sides = {"was": (one.was, one.was_done), "now": (one.now, one.now_done)}
    shown = {k: {"decision": told(d), "done": done, "fields": asdict(d)} for k, (d, done) in sides.items()}
    return {"entry": one.number, "at": one.at, "same": one.same, "differs": list(one.differs), **shown}
