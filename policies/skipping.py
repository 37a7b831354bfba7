"""Samples that a person leaves out: spans of their numbers, and what a batch becomes by them. Pure.

The rule is that of docs/contracts.md, section 2: a batch that touches a span to skip starts behind it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policies.facts import Batch, Expected, Spans

if TYPE_CHECKING:
    from collections.abc import Iterable


def merge(*spans: Iterable[tuple[int, int]]) -> Spans:
    """All of them, sorted; what touches or overlaps is one."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(one for some in spans for one in some):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def touches(first: int, count: int, spans: Spans) -> bool:
    """Does a batch of `count` from `first` touch one of them?"""
    return any(first < end and first + count > start for start, end in spans)


def moved(expected: Expected, spans: Spans) -> Expected:
    """What the ranks read next when `spans` are left out. A batch that has moved is known by its place alone: no hash."""
    parts = {(b.first, b.count) for b in expected.next_batches.values()}
    if not parts:
        return expected
    first, count = min(one for one, _ in parts), sum(size for _, size in parts)
    start = first
    for low, end in spans:
        if start < end and start + count > low:
            start = end
    if start == first:
        return expected
    there = {r: Batch(b.first + start - first, b.count, "") for r, b in expected.next_batches.items()}
    return replace(expected, next_batches=there)


def spans_text(spans: Spans) -> str:
    """Spans as people read them, both ends included."""
    return ", ".join(f"samples {first:,} to {end - 1:,}" for first, end in spans)
