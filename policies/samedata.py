"""Two nodes fail on the same samples: then it is the data or the code, and another restart reads them again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.facts import FaultClass
from policies.quarantine import blamed
from policies.reasons import Reason
from policies.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.history import Incident
    from policies.rules import DataRules

SIGNATURES: Final = frozenset({"data", "numeric", "software"})
"""The heads of the categories that data or code can bring about. Hardware, storage and what is unknown are not among them."""

_FAULTS: Final = frozenset({FaultClass.NON_FINITE, FaultClass.RANK_FAILED, FaultClass.RANK_DIED})
"""What happens while a batch is trained. Start-up, load, save and lost nodes are other stories."""


def judge(incidents: Sequence[Incident], rules: DataRules) -> Stop | None:
    """Hold the newest incident against those before it. None where it has read something else, or data has no part in it."""
    if not incidents or _window(incidents[-1], rules) is None:
        return None
    now = incidents[-1]
    before = [i for i in incidents if i.attempt < now.attempt and _same_window(i, now, rules)]
    if not before:
        return None
    found = [*before, now]
    told = [_told(one) for one in found]
    first, end = _shared(before[-1], now, rules)
    seen = (
        f"Iterations {' and '.join(told)}: {_what(found)} on samples {first:,} to {end - 1:,}. "
        f"{_whose([set(blamed(one.diagnosis, one.trouble)) for one in found])}"
    )
    lifts = f"a person who has found what is in them, or leaves them out: --skip-samples {first}:{end}"
    return Stop(Reason.SAME_DATA, seen, lifts)


def _window(incident: Incident, rules: DataRules) -> tuple[int, int] | None:
    """First sample and end of what was being read; None where the fault is none of data or code.

    A failing rank may have read ahead; a loss that is not finite is that of the batch itself.
    """
    found = incident.diagnosis
    if found is None or found.data is None or incident.fault not in _FAULTS:
        return None
    if found.category.partition(".")[0] not in SIGNATURES:
        return None
    first, count = found.data
    ahead = 0 if incident.fault is FaultClass.NON_FINITE else rules.prefetch_steps
    return first, first + count * (1 + ahead)


def _same_window(one: Incident, other: Incident, rules: DataRules) -> bool:
    """Do they overlap? A rank that dies of a sample says so in any step from the one that read it to the one that trains it."""
    a, b = _window(one, rules), _window(other, rules)
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


def _shared(one: Incident, other: Incident, rules: DataRules) -> tuple[int, int]:
    """The samples in question: what the last two have in common. They do overlap."""
    a, b = _window(one, rules), _window(other, rules)
    assert a is not None and b is not None  # noqa: S101, PT018 - judge has looked
    return max(a[0], b[0]), min(a[1], b[1])


def _told(incident: Incident) -> str:
    """52310 (n0207, rank 1663), or what of it is known."""
    head = incident.diagnosis.first[0] if incident.diagnosis and incident.diagnosis.first else None
    place = [head.node] if head and head.node else []
    place += [f"rank {head.rank}"] if head and head.rank is not None else []
    step = incident.diagnosis.step if incident.diagnosis and incident.diagnosis.step is not None else "unknown"
    return f"{step} ({', '.join(place) if place else 'node unknown'})"


def _what(found: list[Incident]) -> str:
    kinds = sorted({i.fault.value for i in found})
    return " and ".join(kinds)


def _whose(blamed_each: list[set[str]]) -> str:
    """Other nodes each time clear the machines; one that was there every time, or a node that is not known, does not."""
    always = set.intersection(*blamed_each)
    if all(blamed_each) and not always:
        return "Different nodes, the same data: the data or the code, not the machines. The nodes stay in use"
    where = f"each time on {', '.join(sorted(always))}" if always else "and not each time a node to name"
    return f"The same data, {where}: whether it is the data, the code or a machine cannot be told apart"
