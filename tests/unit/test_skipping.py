"""Samples that are left out: spans, and what a batch becomes by them."""

from __future__ import annotations

import pytest

from policies.facts import Batch, Expected, Spans
from policies.skipping import merge, moved, spans_text, touches


def test_spans_are_sorted_and_joined() -> None:
    assert merge(((40, 48),), ((8, 16), (16, 20), (10, 12))) == ((8, 20), (40, 48))
    assert merge() == ()


@pytest.mark.parametrize(("first", "hit"), [(0, False), (1, True), (8, True), (15, True), (16, False)])
def test_a_batch_touches_a_span_or_not(first: int, hit: bool) -> None:
    assert touches(first, 8, ((8, 16),)) is hit


@pytest.mark.parametrize(
    ("spans", "start"),
    [
        ((), 16),
        (((0, 16),), 16),
        (((32, 40),), 16),
        (((20, 21),), 21),
        (((31, 33), (40, 44)), 33 + 11),  # behind the first span it touches the second
    ],
)
def test_what_the_ranks_read_next_moves_behind_the_span(spans: Spans, start: int) -> None:
    """Two replicas read 8 samples each from 16 on."""
    both = {0: Batch(16, 8, "a"), 1: Batch(24, 8, "b"), 2: Batch(16, 8, "a")}
    after = moved(Expected("c", None, {}, both), spans).next_batches
    assert [after[r].first for r in (0, 1, 2)] == [start, start + 8, start]
    assert [b.hash for b in after.values()] == (["a", "b", "a"] if start == 16 else ["", "", ""])


def test_what_nobody_told_stays_unknown() -> None:
    assert moved(Expected("c", None), ((0, 8),)).next_batches == {}


def test_both_ends_are_told() -> None:
    assert spans_text(((4_293_000, 4_301_192),)) == "samples 4,293,000 to 4,301,191"
