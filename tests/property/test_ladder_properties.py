"""For every store: only completed saves are used, the best one is, and a start from nothing never loses one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import CheckpointPhase, CheckpointState
from policies.ladder import climb

REPEATABLE = settings(derandomize=True, max_examples=300, deadline=None)


def state(number: int, step: int, phase: CheckpointPhase, place: str, done: float | None) -> CheckpointState:
    return CheckpointState(f"a{number:04d}-i{step:07d}", number, step, phase, completed_at=done, location=place)  # type: ignore[arg-type]


stores = st.lists(
    st.builds(
        state,
        st.integers(1, 3),
        st.sampled_from([10, 20, 30]),
        st.sampled_from(CheckpointPhase),
        st.sampled_from(["store", "archive"]),
        st.one_of(st.none(), st.sampled_from([1.0, 2.0])),
    ),
    max_size=6,
    unique_by=lambda c: (c.id, c.location),
)
some_ids = st.sets(st.sampled_from([f"a{a:04d}-i{s:07d}" for a in (1, 2, 3) for s in (10, 20, 30)]), max_size=3)


@REPEATABLE
@given(stores, some_ids, some_ids, st.booleans(), st.randoms())
def test_the_ladder(saves: list[CheckpointState], out: set[str], ever: set[str], blind: bool, order: object) -> None:
    if blind:
        saves = [c for c in saves if c.location == "store"]
    excluded = dict.fromkeys(sorted(out), "excluded")
    journal = tuple(sorted(ever))
    rung = climb(tuple(saves), None, excluded, journal, blind=blind)
    order.shuffle(saves)
    assert climb(tuple(saves), None, excluded, journal, blind=blind) == rung
    allowed = [c for c in saves if c.id not in out]
    usable = [c for c in allowed if c.phase is CheckpointPhase.COMPLETED]
    assert (rung.checkpoint is None) == (not usable)
    best = rung.checkpoint
    if best is not None:
        assert best in usable
        assert not rung.from_nothing
        assert not rung.lost
        assert best.location == "store" or all(c.location == "archive" for c in usable)
        assert all(c.step <= best.step for c in usable if c.location == best.location)
        named = {r.id for r in rung.rejected}
        assert {c.id for c in saves if c.step > best.step and c.location == "store"} <= named
    else:
        completed_once = bool(ever) or any(c.phase is CheckpointPhase.COMPLETED for c in saves)
        assert [rung.wait, rung.from_nothing, rung.lost, rung.unseen].count(True) == 1
        assert rung.wait or rung.unseen == blind
        assert rung.wait or blind or rung.lost == completed_once


@REPEATABLE
@given(stores, some_ids)
def test_a_choice_is_completed_or_refused(saves: list[CheckpointState], choices: set[str]) -> None:
    for choice in choices:
        rung = climb(tuple(saves), choice)
        completed = [c for c in saves if c.id == choice and c.phase is CheckpointPhase.COMPLETED]
        assert (rung.checkpoint in completed) == bool(completed)
        assert not rung.from_nothing
        assert bool(rung.rejected) == (rung.checkpoint is None)
