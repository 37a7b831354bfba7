"""The fault stays with the slot though its node was changed: then it is not the node. Pure.

What stays with a slot: its rank's data, its stage's code, its port, its power. Barring one good node after the other
finds none of them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from policies.quarantine import blamed
from policies.reasons import Reason
from policies.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.history import History, Incident
    from policies.rules import QuarantineRules

ASKS: Final = 2
HALTS: Final = 3
"""On so many nodes of a slot in a row (the first swap starts the count) a person is asked, and the run halted."""


def judge(history: History, incidents: Sequence[Incident], rules: QuarantineRules) -> Stop | None:
    """The third time halts. `incidents` are those that count, the open one last."""
    for node, row in rows(history, incidents, rules).items():
        if times(row) >= HALTS:
            return Stop(Reason.NOT_THE_NODE, told(node, row), "a person who has found what the slot has in common")
    return None


def rows(
    history: History, incidents: Sequence[Incident], rules: QuarantineRules
) -> Mapping[str, tuple[tuple[int, str, str], ...]]:
    """Node blamed now -> the row of faults of its slot that led here, oldest first: (slot, node, fault)."""
    if not incidents:
        return {}
    now, found = incidents[-1], {}
    slots = {a.number: a.slots for a in history.attempts}
    for node in blamed(now.diagnosis, now.trouble):
        if node in slots.get(now.attempt, ()):
            slot = slots[now.attempt].index(node)
            row = [(slot, node, now.fault.value)]
            later = now
            for one in reversed(incidents[:-1]):
                there = slots.get(one.attempt, ())
                on_slot = there[slot] if slot < len(there) else None
                if on_slot in blamed(one.diagnosis, one.trouble) and _soon(one, later, rules):
                    row.append((slot, str(on_slot), now.fault.value))
                    later = one
            found[node] = tuple(reversed(row))
    return found


def _soon(one: Incident, later: Incident, rules: QuarantineRules) -> bool:
    """The same fault again, before the run had gone far and long; while a person is waited for, no time counts."""
    if one.fault is not later.fault or one.attempt >= later.attempt:
        return False
    back = one.times.relaunched if one.times.relaunched is not None else one.trouble.at
    return max(0, later.frontier - one.frontier) < rules.soon_steps and later.trouble.at - back < rules.soon_s


def staying(history: History, incidents: Sequence[Incident], rules: QuarantineRules) -> Mapping[str, str]:
    """Nodes blamed now that are not to be barred, because the fault came with the slot; and what was seen."""
    found = rows(history, incidents, rules)
    return {node: told(node, row) for node, row in found.items() if times(row) >= ASKS}


def times(row: Sequence[tuple[int, str, str]]) -> int:
    """How often, from the last fault before the slot's first swap on; 1: the node was never changed."""
    groups = [len(list(same)) for _, same in groupby(row, key=lambda one: one[1])]
    return 1 + sum(groups[1:])


def told(node: str, row: Sequence[tuple[int, str, str]]) -> str:
    """What was seen, in words."""
    slot, _, fault = row[-1]
    before = ", ".join(dict.fromkeys(one[1] for one in row if one[1] != node))
    return (
        f"{fault} on slot {slot}: {before} before, and {node} since the swap. It stays with the slot, not with the node"
    )
