"""A save that the framework has begun and does not finish: told long before it counts as one that never ends. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policies.facts import View
    from policies.history import History
    from policies.rules import Rules


def bound_s(history: History, rules: Rules) -> float:
    """Seconds after which a save should be written: by the slowest of this run's own saves, but never below the floor.

    Before there is any: half of the time after which it counts as stuck.
    """
    slowest = _slowest_s(history)
    if slowest is None:
        return rules.stall.save_written_s / 2
    return max(rules.checkpoint.unfinished_floor_s, rules.checkpoint.unfinished_factor * slowest)


def _slowest_s(history: History) -> float | None:
    """Seconds that the slowest save of this run took to be written; None before there is any."""
    return max((cost.written_s for cost in history.save_costs if cost.written_s is not None), default=None)


def unfinished(view: View, history: History, rules: Rules, now: float) -> str:
    """What a person is told of a save that takes far longer than the others did; empty while all is well."""
    attempt = history.attempt
    if attempt is None or view.attempt is None or view.attempt.number != attempt.number:
        return ""
    bound = bound_s(history, rules)
    late = [s for s in view.attempt.saves if s.state in {"begin", "blocked"} and now - s.began_at >= bound]
    if not late:
        return ""
    one = min(late, key=lambda save: save.began_at)
    slowest = _slowest_s(history)
    others = (
        f"the slowest one of this run took {slowest:.0f} s"
        if slowest is not None
        else "no save of this run was written before"
    )
    # Rounded down to the bound: a text that changes with every look would be a new one each time.
    return f"The save of step {one.step} began over {bound:.0f} s ago and is not written; {others}"
