"""The spares in one line: which are hot, what was checked there and when, and why the others are not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import spares
from policies.facts import Unknown
from policies.quarantine import may_return
from supervisor.telling.say import clean, count, names, span

if TYPE_CHECKING:
    from policies.facts import NodeView, View
    from policies.history import History

SHOWN = 6


def hot(history: History, view: View, now: float) -> int:
    """How many spares could take a slot now; 0 where the nodes can't be seen."""
    return sum(why is None for _, why in _free(history, view, now))


def spares_lines(history: History, view: View, now: float) -> list[str]:
    """`Spares: n0643 (9 checks, 12 s ago), n0644 not checked yet.` No line where there is none."""
    told = [
        f"{clean(one.name, 64)} {_why(one, why) if why else _looked(one, now)}"
        for one, why in _free(history, view, now)
    ]
    lines = [f"Spares: {names(told, SHOWN)}."] if told else []
    back = [_not_back(name, view) for name in sorted(may_return(history, now))]
    return [*lines, f"Bar over, back once the checks pass: {names(back, SHOWN)}."] if back else lines


def _not_back(name: str, view: View) -> str:
    why = "not seen" if isinstance(view.nodes, Unknown) else spares.not_back(name, view.nodes) or "well"
    return f"{clean(name, 64)} ({clean(why, 120)})"


def _free(history: History, view: View, now: float) -> list[tuple[NodeView, str | None]]:
    """The nodes that hold no slot and are not barred, and why each is no hot spare."""
    if isinstance(view.nodes, Unknown):
        return []
    slots, barred = history.attempt.slots if history.attempt else (), history.barred(now)
    free = (view.nodes[name] for name in sorted(view.nodes) if name not in slots and name not in barred)
    return [(one, spares.why_not(one, slots, barred)) for one in free]


def _looked(one: NodeView, now: float) -> str:
    """What was looked at, and when; what could not be is no fault, and is said."""
    at = "" if one.checked_at is None else f", {span(max(0.0, now - one.checked_at))} ago"
    failed = [clean(text.partition(":")[0], 64) for text in one.unchecked]
    blind = f"; could not look: {names(failed, 3)}" if failed else ""
    return f"({count(one.checks, 'check')}{at}{blind})"


def _why(one: NodeView, why: str) -> str:
    return clean(f"is none: {why}" if one.agent else why, 120)
