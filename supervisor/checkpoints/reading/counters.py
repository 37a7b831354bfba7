"""Both ledgers and the schedule of a save, from what its framework keeps of them. Pure but for the reader given to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from supervisor.checkpoints.reading.objects import Namespace

Counters = dict[str, Any]
"""iteration, samples (read), dropped (samples left out on purpose), updates (applied), skipped (iterations without an
update), lr, schedule; a part that is not known is left out."""

PLAIN_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "iteration": ("ledger.step", "iteration", "train_state.step", "step"),
    "samples": ("ledger.samples", "consumed_train_samples", "consumed_samples", "consumed", "samples"),
    "updates": ("optimizer.step", "updates"),
    "skipped": ("ledger.skipped", "skipped"),
    "lr": ("lr",),
}
"""Names under which a plain save may keep a counter, the most certain first."""
_DEPTH: Final = 6


def of_common_state(loaded: Any) -> Counters:
    """Counters in Megatron's common state (or in a common.pt of old); empty when it is no such state."""
    state = _state_of(loaded)
    if state is None:
        return {}
    args = vars(state["args"]) if isinstance(state.get("args"), Namespace) else {}
    schedule = state.get("opt_param_scheduler")
    counters: Counters = {
        # args.iteration is where the process began, not where it saved.
        "iteration": whole(state.get("iteration")),
        "samples": whole(args.get("consumed_train_samples")),
        "dropped": whole(args.get("skipped_train_samples")),
        "schedule": _plain(schedule) if isinstance(schedule, dict) else None,
    }
    counters |= of_groups(state.get("optimizer"))
    return {name: value for name, value in counters.items() if value is not None}


def of_groups(loaded: Any) -> Counters:
    """Applied updates and learning rate from the optimizer's parameter groups; empty when they don't agree."""
    groups = [group for group in _groups(loaded, _DEPTH) if isinstance(group, dict)]
    steps = {whole(group["step"]) for group in groups if "step" in group}
    rates = [number(group["lr"]) for group in groups if "lr" in group]
    found: Counters = {}
    if len(steps) == 1 and None not in steps:
        found["updates"] = steps.pop()
    if rates and rates[0] is not None:
        found["lr"] = rates[0]
    return found


def with_skipped(counters: Counters) -> Counters:
    """Skipped iterations follow: Megatron keeps no count of them, and the optimizer counts those that it applied."""
    iteration, updates = counters.get("iteration"), counters.get("updates")
    if "skipped" not in counters and iteration is not None and updates is not None and 0 <= updates <= iteration:
        return {**counters, "skipped": iteration - updates}
    return counters


def whole(value: Any) -> int | None:
    """A count, also when it was kept as a float or in a list of one."""
    found = number(value)
    return int(found) if found is not None and found >= 0 and found == int(found) else None


def number(value: Any) -> int | float | None:
    """A plain finite number, or the one in a list of one; None for everything else."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value if plain and math.isfinite(value) and abs(value) < 1 << 62 else None


def _state_of(loaded: Any) -> dict[Any, Any] | None:
    # Megatron wraps the state in a list of one.
    if isinstance(loaded, list) and len(loaded) == 1:
        loaded = loaded[0]
    return loaded if isinstance(loaded, dict) else None


def _groups(value: Any, depth: int) -> Iterator[Any]:
    """Every item of every `param_groups` below: a chained optimizer nests them, each format a little differently."""
    if depth == 0:
        return
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and isinstance(value.get("param_groups"), list):
        yield from value["param_groups"]
    for item in below:
        if isinstance(item, dict | list):
            yield from _groups(item, depth - 1)


def _plain(schedule: Mapping[Any, Any]) -> dict[str, Any]:
    """What of it goes into JSON: numbers and short texts under short names."""
    kept = {}
    for name, value in list(schedule.items())[:100]:
        fits = isinstance(value, bool) or number(value) is not None or (isinstance(value, str) and len(value) <= 200)
        if isinstance(name, str) and len(name) <= 100 and fits and not isinstance(value, list):
            kept[name] = value
    return kept
