# ruff: noqa: E402 - the imports need torch, which may be missing
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.layout import Layout as Judge
from supervisor.bench.trainer.places import Layout
from supervisor.bench.trainer.samples import Sampler, batch_of, tokens

spans = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)).map(lambda s: (s[0], s[0] + s[1])), max_size=4)


@given(st.integers(1, 4), st.integers(1, 4), spans, st.integers(1, 12))
def test_replicas_share_each_batch_and_what_is_to_be_skipped_is_never_read(replicas, share, skip, steps):
    sampler = Sampler("v1", replicas * share, replicas, tuple(skip))
    read: list[int] = []
    for _ in range(steps):
        parts = [number for replica in range(replicas) for number in sampler.part(replica)]
        assert parts == list(range(sampler.first(), sampler.first() + sampler.batch))
        read += parts
        sampler.advance()
    assert read == sorted(set(read))
    assert not set(read) & {number for start, end in skip for number in range(start, end)}
    if not skip:
        assert read == list(range(steps * sampler.batch))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_places_and_ranks_are_one_to_one(tp, pp, dp):
    layout = Layout(tp, pp, dp)
    places = [layout.place(rank) for rank in range(tp * pp * dp)]
    assert [layout.rank(place) for place in places] == list(range(tp * pp * dp))
    judge = Judge(tp, pp, dp, ranks_per_node=1)
    assert [(p.tp, p.pp, p.dp) for p in places] == [(p.tp, p.pp, p.dp) for p in map(judge.place, range(judge.world))]
    for place in places:
        for axis in ("tp", "pp", "dp"):
            along = layout.peers(place, axis)
            assert len(along) == getattr(layout, axis)
            assert [getattr(layout.place(rank), axis) for rank in along] == list(range(len(along)))
        assert len(layout.peers(place, "tp", "pp")) == tp * pp


def test_another_version_or_other_numbers_are_another_batch():
    batches = {
        batch_of("v1", range(8)),
        batch_of("v2", range(8)),
        batch_of("v1", range(1, 9)),
        batch_of("v1", range(7)),
    }
    assert len({hashed for _, _, hashed in batches}) == 4
    one = tokens("v1", range(3, 5), 16, 128)
    assert one.shape == (2, 17)
    assert torch.equal(one[1:], tokens("v1", range(4, 5), 16, 128)), "a sample is made from its number alone"
    assert not torch.equal(one, tokens("v2", range(3, 5), 16, 128))
