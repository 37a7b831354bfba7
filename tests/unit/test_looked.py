"""The slim view: small, and it decides as the whole one did."""

from __future__ import annotations

from dataclasses import replace

from builders import save
from hypothesis import given
from hypothesis import strategies as st

from policies.facts import UNKNOWN, AttemptView, CheckpointPhase, NodeState, NodeView, RankExit, View
from policies.history import Attempt, History
from supervisor.journal.entries import ENTRY, Looked
from supervisor.looked import NEWEST, Look, look_of, names, rows, view_of

SLOTS = tuple(f"n{i:04d}" for i in range(640))
HISTORY = History(attempts=(Attempt(1, SLOTS, None, 0, 0.0, None),))


def big() -> View:
    """640 slots and 16 spares on 41 switches, three saves."""
    nodes = {
        f"n{i:04d}": NodeView(f"n{i:04d}", NodeState.UP, 5.0, True, 1764513622.25 + i, switch=f"sw{i // 16:02d}")
        for i in range(656)
    }
    return View(
        nodes=nodes,
        attempt=AttemptView(1, True),
        checkpoints=tuple(save(n) for n in (1, 2, 3)),
        archive=(save(1, location="archive"),),
        archive_as_of=8.0,
        store_as_of=9.0,
        cluster_as_of=9.5,
    )


@given(st.lists(st.from_regex(r"\A[a-c]{0,2}[0-9]{0,4}\Z")))
def test_names_come_back(some: list[str]) -> None:
    assert sorted(names(rows(some))) == sorted(set(some))


def test_a_large_view_is_small_when_all_is_well() -> None:
    look = look_of(big(), HISTORY, 5120)
    bare = replace(look, checkpoints=(), archive=())
    assert len(ENTRY.dump_json(Looked(bare))) < 2048
    assert ENTRY.validate_json(ENTRY.dump_json(Looked(look))) == Looked(look)


def test_what_decisions_read_comes_back() -> None:
    view = big()
    assert view.nodes is not UNKNOWN
    ill = {
        "n0007": replace(view.nodes["n0007"], state=NodeState.DOWN, agent=False),
        "n0641": replace(view.nodes["n0641"], drained_by_other=True),
        "n0008": replace(view.nodes["n0008"], agent=False),
    }
    view = replace(view, nodes={**view.nodes, **ill})
    again = view_of(look_of(view, HISTORY, 5120), 5120)
    assert again.nodes is not UNKNOWN
    assert again.nodes.keys() == view.nodes.keys()
    assert {n: again.nodes[n] for n in ill} == ill
    for name, node in view.nodes.items():
        back = again.nodes[name]
        assert (back.state, back.agent, back.switch) == (node.state, node.agent, node.switch)
        assert name in SLOTS or back.checked_at == node.checked_at
    assert again.checkpoints == view.checkpoints
    assert (again.store_as_of, again.cluster_as_of) == (9.0, 9.5)
    assert (again.archive, again.archive_as_of) == (view.archive, 8.0)
    blind = View(unread=frozenset({"store"}))
    assert view_of(look_of(blind, HISTORY, 5120), 5120).unread == {"store"}


def test_unknown_stays_unknown_and_nothing_stays_nothing() -> None:
    again = view_of(look_of(View(), History(), 4), 4)
    assert (again.nodes, again.checkpoints, again.attempt) == (UNKNOWN, UNKNOWN, None)
    assert view_of(Look(), 4).nodes == {}
    assert view_of(Look(), 4).archive == ()  # as in a journal from before there were archives
    assert view_of(look_of(View(archive=UNKNOWN), History(), 4), 4).archive is UNKNOWN


def test_before_the_first_attempt_every_well_node_is_the_same() -> None:
    look = look_of(big(), History(), 5120)
    assert look.ready == ()
    assert sum(1 for _, some in look.well for _ in names(some)) == 656


def test_that_every_rank_ended_well_is_kept() -> None:
    ends = tuple(RankExit(r, "n0", 1, 1.0, 0) for r in range(4))
    for known, all_clean in ((ends, True), (ends[:3], False), ((*ends[:3], replace(ends[3], code=1)), False)):
        view = View(attempt=AttemptView(1, False, exits=known))
        again = view_of(look_of(view, History(), 4), 4)
        assert again.attempt is not None
        assert (len({e.rank for e in again.attempt.exits if e.clean}) == 4) is all_clean


def test_old_saves_that_came_to_nothing_are_left_out() -> None:
    good = (save(90), save(91))
    void = tuple(replace(c, id=f"void{c.step}", phase=CheckpointPhase.ABANDONED) for c in map(save, range(NEWEST + 5)))
    look = look_of(View(checkpoints=(*void, *good)), History(), 4)
    assert look.checkpoints is not None
    assert [c.id for c in look.checkpoints] == [c.id for c in (*void[5:], *good)]
