"""The findings of each attempt, each once and not too many. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final

from policies.facts import Finding

MOST: Final = 20_000
MOST_NODE: Final = 500
"""Findings kept of one attempt, and of one node of it. An agent sends each kind once or a few times a rank."""


class Found:
    """Findings by attempt, in the order in which they came."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[object, Finding]] = {}
        self._by_node: dict[int, Counter[str | None]] = {}

    def note(self, found: Finding) -> bool:
        """Keep a finding; False when it is known (an agent started again reads its logs again) or there are too many."""
        kept = self._kept.setdefault(found.attempt, {})
        by_node = self._by_node.setdefault(found.attempt, Counter())
        place = found.line if found.line is not None else found.text
        key = (found.node, found.rank, found.file, place, found.kind)
        if key in kept or len(kept) >= MOST or by_node[found.node] >= MOST_NODE:
            return False
        kept[key] = found
        by_node[found.node] += 1
        return True

    def of(self, attempt: int) -> tuple[Finding, ...]:
        """The findings of one attempt."""
        return tuple(self._kept.get(attempt, {}).values())

    def forget(self, attempt: int) -> None:
        """Drop what is known of an attempt."""
        self._kept.pop(attempt, None)
        self._by_node.pop(attempt, None)
