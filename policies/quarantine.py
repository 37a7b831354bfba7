"""Whom to bar from use after an incident, and when to ask a person first.

A node is barred for what points at it alone. What can't be seen, and what many nodes do at once, bars nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies import spares
from policies.facts import FaultClass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from policies.facts import NodeView
    from policies.history import Diagnosis, History, Incident, Trouble
    from policies.rules import QuarantineRules, Rules

DAY_S: Final = 86_400

BREAKER_WINDOW_S: Final = 3600
BREAKER_FLOOR: Final = 2
"""So many nodes may always be barred within the hour, however small the run."""

TWICE: Final = frozenset({FaultClass.RANK_DIED, FaultClass.RANK_FAILED, FaultClass.LAUNCH_FAILED})
"""Classes that restart in place once, and bar the node when it is hit again."""

EVIDENCED: Final = TWICE | {FaultClass.STALL, FaultClass.SAVE_STUCK}
"""Classes in which evidence of broken hardware bars the suspects at once."""


@dataclass(frozen=True, slots=True)
class ToBar:
    """These nodes, none when nobody can be named; and why."""

    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Breaker:
    """Too many at once: `nodes` would make it `count` within the hour, over `limit`. A person is asked."""

    nodes: tuple[str, ...]
    count: int
    limit: float
    why: str


def to_bar(
    diagnosis: Diagnosis | None,
    trouble: Trouble,
    rules: Rules,
    history: History,
    now: float,
    keep: Collection[str] = (),
) -> ToBar | Breaker:
    """Whom the open trouble bars. Asking again after the bars are journaled gives the same answer.

    `keep` are nodes that a person wants to stay in use; `now` is in wall seconds.
    """
    found = _suspects(diagnosis, trouble, rules, history, now)
    nodes = tuple(dict.fromkeys(n for n in found.nodes if n not in keep))
    if not nodes:
        return ToBar((), f"{', '.join(found.nodes)} kept in use by a person" if found.nodes else found.why)
    limit = max(BREAKER_FLOOR, rules.quarantine.breaker_share_per_hour * _slots(history))
    count = len({b.node for b in history.bars if now - b.at < BREAKER_WINDOW_S}.union(nodes))
    if count > limit:
        return Breaker(
            nodes,
            count,
            limit,
            f"{found.why}; that would make {count} nodes barred within an hour (limit {limit:g}): "
            "so many at once point at something that they share",
        )
    return ToBar(nodes, found.why)


def _suspects(diagnosis: Diagnosis | None, trouble: Trouble, rules: Rules, history: History, now: float) -> ToBar:
    fault = (diagnosis.fault if diagnosis else None) or trouble.fault
    nodes = (diagnosis.suspects if diagnosis else ()) or trouble.nodes
    if fault is FaultClass.NODE_LOST:
        return ToBar(nodes, "the cluster says that the node is gone")
    if fault is FaultClass.NODE_SILENT:
        others = 1 - len(set(nodes)) / max(1, _slots(history))
        if others < rules.node.others_answer_share:
            return ToBar((), "too few nodes answer to tell a silent node from a blind eye")
        return ToBar(nodes, "the node does not answer while others do")
    if diagnosis and diagnosis.suspects and _is_hardware(diagnosis) and fault in EVIDENCED:
        return ToBar(diagnosis.suspects, f"evidence of {diagnosis.category}")
    if fault is FaultClass.STALL and diagnosis and diagnosis.inferred and not diagnosis.suspects:
        return ToBar((), "what its rank was doing explains the stall, not its machine")
    if fault is FaultClass.STALL:
        return _odd_one_out(trouble, history)
    if fault in TWICE:
        return _hit_again(diagnosis, trouble, rules, history, now)
    return ToBar((), f"{fault} points at no node")


def _is_hardware(diagnosis: Diagnosis) -> bool:
    return diagnosis.category.partition(".")[0] == "hardware"


def _odd_one_out(trouble: Trouble, history: History) -> ToBar:
    """Ranks behind the others are suspects when they sit on one node, and the others are the majority."""
    odd = tuple(dict.fromkeys(trouble.nodes))
    if len(odd) == 1 and _slots(history) > 2:  # of two, neither is the majority
        return ToBar(odd, "the ranks that are behind are all on this node")
    return ToBar((), "no one node stands apart in this stall")


def _hit_again(diagnosis: Diagnosis | None, trouble: Trouble, rules: Rules, history: History, now: float) -> ToBar:
    """The first time restarts in place; the same node twice within the budget's window is barred.

    An attempt ends once, so incidents of earlier attempts are the other times. An error of data or code that comes back with
    its samples is no other time of the node.
    """
    node = _one_node(diagnosis, trouble)
    if node is None:
        return ToBar((), "no one node stands apart in this fault")
    before = [
        i.number
        for i in history.incidents
        if i.fault in TWICE
        and i.attempt < trouble.attempt
        and now - i.trouble.at < rules.budget.window_s
        and _one_node(i.diagnosis, i.trouble) == node
        and not _same_samples(i.diagnosis, diagnosis)
    ]
    if before:
        return ToBar((node,), f"the second time on this node: incident {before[-1]} was there too")
    return ToBar((), "the first time on this node: restart in place")


def _same_samples(one: Diagnosis | None, other: Diagnosis | None) -> bool:
    """The same window was being read, and both errors are ones that data or code can bring about."""
    if one is None or other is None or one.data is None or one.data != other.data:
        return False
    return {one.category.partition(".")[0], other.category.partition(".")[0]} <= {"data", "numeric", "software"}


def blamed(diagnosis: Diagnosis | None, trouble: Trouble) -> tuple[str, ...]:
    """The nodes that an error points at: by its evidence if there is any, else by where the ranks were."""
    named = tuple(dict.fromkeys(f.node for f in diagnosis.first if f.node is not None)) if diagnosis else ()
    return (diagnosis.suspects if diagnosis else ()) or named or tuple(dict.fromkeys(trouble.nodes))


def _one_node(diagnosis: Diagnosis | None, trouble: Trouble) -> str | None:
    nodes = set(blamed(diagnosis, trouble))
    return nodes.pop() if len(nodes) == 1 else None


def no_suspect(incidents: Sequence[Incident], rules: Rules, now: float) -> str | None:
    """Why a person is asked although nobody can be blamed; None while restarting in place is still worth a try.

    `incidents` are those that count, the open one last. One fault that points at nobody may be chance: a quarter of all
    faults went away with a restart alone (22.7 %, ByteRobust). The next one of its class is not.
    """
    if not incidents or _one_node(incidents[-1].diagnosis, incidents[-1].trouble) is not None:
        return None
    last = incidents[-1]
    before = [
        i
        for i in incidents
        if i.attempt < last.attempt
        and i.fault is last.fault
        and now - i.trouble.at < rules.budget.window_s
        and not i.barred
        and _one_node(i.diagnosis, i.trouble) is None
    ]
    if len(before) < rules.budget.no_suspect:
        return None
    word = "the second time" if len(before) == 1 else f"{len(before) + 1} times"
    return f"no suspect, {word}: {last.fault} points at nobody, and incident {before[-1].number} did not either"


def for_good(node: str, incident: int, history: History, rules: QuarantineRules) -> bool:
    """Was it barred before, so short a time ago that it does not come back by itself any more?"""
    at = next((i.trouble.at for i in history.incidents if i.number == incident), 0.0)
    return any(
        b.node == node and b.incident != incident and at - b.at < rules.repeat_days * DAY_S for b in history.bars
    )


def on_probation(history: History, rules: QuarantineRules, now: float) -> frozenset[str]:
    """Nodes that came back so short a time ago that they are the last to be used."""
    back = (b for b in history.bars if b.returned_at is not None)
    return frozenset(b.node for b in back if now - (b.returned_at or 0.0) < rules.probation_days * DAY_S)


def may_return(history: History, now: float) -> frozenset[str]:
    """Barred nodes whose time is over, or whose bars a person has lifted: nothing but a check keeps them from coming back."""
    over = {b.node for b in history.bars if b.returned_at is None and b.until is not None and b.until <= now}
    held = {b.node for b in history.bars if b.returned_at is None and (b.until is None or b.until > now)}
    return frozenset(over - held)


def returning(history: History, nodes: Mapping[str, NodeView], now: float) -> tuple[str, ...]:
    """Barred nodes whose time is over and that pass the check: the cluster shows them up, nobody drained them, an agent answers
    and has looked, and nothing is wrong there.
    """
    seen = [nodes[name] for name in sorted(may_return(history, now)) if name in nodes]
    return tuple(n.name for n in seen if spares.why_not(n, (), ()) is None)


def _slots(history: History) -> int:
    return len(history.attempt.slots) if history.attempt else 0
