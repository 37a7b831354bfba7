"""What the agents say of their nodes' health, checked; and what a bad result means for an attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from policies.facts import Finding
from supervisor.evidence.scan import scan
from supervisor.observe import messages
from supervisor.observe.messages import Raw

MOST: Final = 64
"""Results that are kept of a node."""

AT_ONCE: Final = 32
"""Results that are read of one message; an agent sends 16 at most."""

SHOWN: Final = 80
"""Characters of a text that are shown of a node: status.json holds those of 640."""

_STATES: Final = ("healthy", "unhealthy", "unknown")

_Role = Literal["root", "context"]

KINDS: Final[dict[str, tuple[_Role, str]]] = {
    "gpu-lost": ("root", "hardware.gpu"),
    "gpu-recovery": ("root", "hardware.gpu"),
    "gpu-ecc": ("root", "hardware.gpu_memory"),
    "nvlink-down": ("root", "hardware.nvlink"),
    "link-down": ("root", "hardware.network"),
    "disk-full": ("context", "storage.full"),
    "disk-read-only": ("context", "storage.io"),
    "storage-away": ("context", "storage.io"),
    "shm-full": ("context", "oom.host"),
    "memory-short": ("context", "oom.host"),
    "memory-pressure": ("context", "oom.host"),
    "clock-step": ("context", "software.env"),
    "site-check": ("context", "hardware.host"),
}
"""Kind -> its part and category. Broken hardware stops a run by itself; a full disk only stops who writes there, and that
rank says so. A kind that is not known is context."""

_NHC: Final = (
    ("check_hw_ib", "hardware.network"),
    ("check_hw_eth", "hardware.network"),
    ("check_nv", "hardware.gpu"),
    ("check_fs_mount", "storage.io"),
    ("check_fs_", "storage.full"),
    ("check_hw_mem_free", "oom.host"),
    ("check_hw_swap_free", "oom.host"),
)
"""Checks of LBNL NHC by the beginning of their names; its others are of the host."""


@dataclass(frozen=True, slots=True)
class Health:
    """The newest word of one check of one node. Times are the node's own clock, wall seconds (`took_s` a duration).

    It has said so since `since`; at `before` it last said something else. `attempt` was the newest one at `since`.
    """

    name: str
    state: Literal["healthy", "unhealthy", "unknown"]
    kind: str
    text: str
    when: float
    took_s: float
    since: float
    before: float | None
    attempt: int


def read_results(raw: object) -> list[Health] | None:
    """The results of a message; None when it has none that can be read."""
    if not isinstance(raw, list) or len(raw) > AT_ONCE:
        return None
    found = [_result(row) for row in raw if isinstance(row, dict)]
    return [one for one in found if one is not None] or None


def _result(raw: Raw) -> Health | None:
    name, state = messages.text(raw.get("name"), 128), raw.get("state")
    kind, said = messages.text(raw.get("kind"), 64), messages.text(raw.get("text"), 512)
    when, since, attempt = messages.number(raw.get("when")), messages.number(raw.get("since")), raw.get("attempt")
    if not name or state not in _STATES or kind is None or said is None or when is None or since is None:
        return None
    number = messages.count(attempt)
    if number is None or (state == "unhealthy" and not kind):
        return None
    took_s, before = max(0.0, messages.number(raw.get("took_s")) or 0.0), messages.number(raw.get("before"))
    return Health(name, cast("Any", state), kind, said, when, took_s, since, before, number)


@dataclass(slots=True)
class Nodes:
    """The newest result of every check of every node."""

    by_node: dict[str, dict[str, Health]] = field(default_factory=dict)

    def note(self, node: str, results: Iterable[Health]) -> list[Health]:
        """Keep them; returns those that say something else than before. That all is well is no news the first time."""
        kept = self.by_node.setdefault(node, {})
        news = []
        for one in results:
            last = kept.get(one.name)
            if last is None and len(kept) >= MOST:
                continue
            kept[one.name] = one
            before = ("healthy", "") if last is None else (last.state, last.text)
            if one.state != before[0] or (one.state != "healthy" and one.text != before[1]):
                news.append(one)
        return news

    def ill(self) -> list[tuple[str, Health]]:
        """(node, result) for what is unhealthy now."""
        return [(node, one) for node, kept in self.by_node.items() for one in kept.values() if one.state == "unhealthy"]

    def told(self, node: str, state: str) -> tuple[str, ...]:
        """The checks of a node that are in this state, each with the beginning of its text."""
        kept = self.by_node.get(node, {}).values()
        return tuple(f"{one.name}: {one.text[:SHOWN]}" for one in kept if one.state == state)


def finding(one: Health, node: str, attempt: int, offset: float, bound: float, *, holds_slot: bool) -> Finding:
    """What an unhealthy result means for an attempt.

    It began between the last look that said otherwise and the first that said so. What was so before the attempt began,
    or was never seen otherwise, or is on a node without ranks, is no cause of why the attempt stopped.
    """
    role, category = KINDS.get(one.kind, ("context", "none"))
    began = one.since if one.before is None else (one.since + min(one.before, one.since)) / 2
    if one.attempt != attempt or one.before is None or not holds_slot:
        role = "context"
    if one.kind == "site-check":
        category = _site_category(one.text)
    return Finding(
        attempt=attempt,
        kind=one.kind,
        role=role,
        category=category,
        text=f"{one.name}: {one.text}"[:512],
        node=node,
        wall=began + offset,
        offset_bound=bound + (one.since - began),
        source="health",
    )


def _site_category(text: str) -> str:
    known = next((category for start, category in _NHC if start in text), None)
    if known is not None:
        return known
    match = scan(text)
    return match.category if match is not None and match.role == "root" else KINDS["site-check"][1]
