"""What acceptance expects behind samples that are left out is what the reference trainer's sampler reads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from policies.facts import Batch, Expected, Spans
from policies.skipping import merge, moved, touches
from supervisor.bench.trainer.samples import Sampler

SPANS = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 40)).map(lambda s: (s[0], s[0] + s[1])), max_size=6)


def told(sampler: Sampler) -> Expected:
    """What a manifest would say that each of two replicas reads next, nothing being left out."""
    share = sampler.batch // sampler.replicas
    parts = {r: Batch(sampler.position + r * share, share, f"h{r}") for r in range(sampler.replicas)}
    return Expected("c", None, {}, parts)


@given(st.integers(0, 100), SPANS)
def test_the_sampler_and_acceptance_agree(position: int, spans: list[tuple[int, int]]) -> None:
    sampler = Sampler("v1", 8, 2, tuple(spans), position)
    expected = moved(told(sampler), merge(spans))
    for replica in (0, 1):
        part = sampler.part(replica)
        batch = expected.next_batches[replica]
        assert (batch.first, batch.count) == (part.start, len(part))
    assert moved(expected, merge(spans)) == expected
    assert not touches(sampler.first(), 8, merge(spans))


@given(SPANS, SPANS)
def test_merging_keeps_the_same_samples(some: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    def samples(spans: Spans | list[tuple[int, int]]) -> set[int]:
        return {n for first, end in spans for n in range(first, end)}

    merged = merge(some, more)
    assert samples(merged) == samples(some) | samples(more)
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    assert merge(merged) == merged
