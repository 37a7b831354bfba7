"""Which nodes a start may use now, and what keeps each of the others from it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from policies.facts import NodeState, NodeView

_SHOWN = 6


def why_not(node: NodeView, barred: Collection[str]) -> str | None:
    """What keeps a node from a start; None when nothing does."""
    if node.name in barred:
        return "barred"
    if node.state is not NodeState.UP:
        return {NodeState.DOWN: "down", NodeState.SILENT: "does not answer"}.get(node.state, "not known")
    if node.drained_by_other:
        return "drained by somebody else"
    return None if node.agent else "no agent"


def ready(nodes: Mapping[str, NodeView], barred: Collection[str]) -> list[str]:
    """The nodes that a start may use, by name."""
    return sorted(name for name, node in nodes.items() if why_not(node, barred) is None)


def first(count: int, nodes: Mapping[str, NodeView], barred: Collection[str]) -> tuple[str, ...]:
    """The `count` nodes that a first start takes, by name: those with something wrong only where there are no others.

    What their checks have not found by then does not hold it up: a start loses nothing when it fails.
    """
    best = sorted(ready(nodes, barred), key=lambda name: (bool(nodes[name].unhealthy), name))[:count]
    return tuple(sorted(best))


def told(names: Iterable[str], nodes: Mapping[str, NodeView], barred: Collection[str]) -> str:
    """`n0003 down, n0007 drained by somebody else`, for those of `names` that are not ready; the first few."""
    found = {name: why_not(nodes[name], barred) if name in nodes else "not in the allocation" for name in names}
    return few([f"{name} {why}" for name, why in found.items() if why])


def few(words: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    return ", ".join(words[:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
