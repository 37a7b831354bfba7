"""What retention may never do, over all kinds of stores."""

import os
import tempfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import CheckpointPhase, CheckpointState
from policies.retention import by_age, choose
from supervisor.bench import fake_saves
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId

Phase = CheckpointPhase


@st.composite
def states(draw):
    ids = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), unique=True, max_size=12))
    made = []
    for attempt, step in ids:
        phase = draw(st.sampled_from(CheckpointPhase))
        at = float(draw(st.integers(0, 5))) if phase is Phase.COMPLETED else None
        made.append(CheckpointState(str(SaveId(attempt, step)), attempt, step, phase, completed_at=at))
    return tuple(made)


@given(states(), st.integers(1, 4), st.data())
def test_what_is_chosen(saves, keep, data):
    protect = (
        frozenset(data.draw(st.lists(st.sampled_from([s.id for s in saves]), max_size=4))) if saves else frozenset()
    )
    chosen = set(choose(saves, keep, protect))
    by_id = {s.id: s for s in saves}
    done = by_age(saves)
    left = [s for s in done if s.id not in chosen]
    assert not chosen & protect
    assert len([s for s in left if s.id not in protect]) <= keep
    assert [s.id for s in done[-keep:]] == [s.id for s in left if s in done[-keep:]]
    assert {by_id[i].phase for i in chosen} <= {Phase.COMPLETED, Phase.BROKEN, Phase.ABANDONED}
    for i in chosen:
        if by_id[i].phase is not Phase.COMPLETED:
            assert left
            assert all((by_id[i].attempt, by_id[i].step) < (s.attempt, s.step) for s in done[-keep:])


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_nothing_is_refused(keep):
    with pytest.raises(ValueError, match="never deleted"):
        choose((), keep, frozenset())


def write(store, save):
    path = os.path.join(store.save_dir(save.attempt), f"iter_{save.step:07d}")
    items = [fake_saves.Chunk("w", "uint8", (8,), (0,), (8,), "__0_0.distcp", b"elements")]
    fake_saves.write(path, items, iteration=save.step)
    return path


def sizes_of(path):
    return {name: os.path.getsize(os.path.join(path, name)) for name in ("__0_0.distcp", ".metadata")}


class Killed(BaseException):
    pass


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["seal", "break", "abandon", "leave"]), min_size=1, max_size=7),
    st.integers(1, 3),
    st.sets(st.integers(0, 6), max_size=2),
    st.integers(0, 25),
)
def test_a_real_store_that_is_stopped_anywhere_in_between(kinds, keep, protected, stop_at):
    with tempfile.TemporaryDirectory() as root:
        at = [time.time() + 3600]

        def clock():
            at[0] += 1
            return at[0]

        store = PosixStore(root, 1, clock)
        store.create()
        whole = {}
        for number, kind in enumerate(kinds):
            save = SaveId(1, number + 1)
            path = write(store, save)
            whole[str(save)] = sizes_of(path)
            if kind == "break":
                os.truncate(os.path.join(path, "__0_0.distcp"), 0)
            if kind == "abandon":
                store.abandon(str(save), "fenced")
            elif kind != "leave":
                store.seal(str(save))
        before = store.scan()
        protect = frozenset(str(SaveId(1, n + 1)) for n in protected)
        wanted = set(choose(before, keep, protect))
        left = [stop_at]

        def step(name):
            # Whatever a reader sees as completed is whole, and the newest completed one is always among it.
            seen = by_age(store.scan())
            for state in seen:
                folder = os.path.join(root, "saves", "a0001", f"iter_{state.step:07d}")
                assert sizes_of(folder) == whole[state.id]
            assert [s.id for s in seen[-1:]] == [s.id for s in by_age(before)[-1:]]
            if left[0] == 0:
                raise Killed
            left[0] -= 1

        try:
            PosixStore(root, 1, clock, step=step).retain(keep, protect)
        except Killed:
            store.retain(keep, protect)
        assert [s for s in before if s.id not in wanted] == list(store.scan())
        kept = {f"iter_{s.step:07d}" for s in before if s.id not in wanted}
        assert set(os.listdir(os.path.join(root, "saves/a0001"))) == kept
        assert set(os.listdir(os.path.join(root, "deleted"))) == wanted
        with open(os.path.join(root, "completed.json"), "rb") if by_age(before) else open(os.devnull, "rb") as file:
            listed = file.read()
        assert not any(i.encode() in listed for i in wanted)
        for gone in wanted:
            assert store.seal(gone).reasons == ("deleted by retention",)
            with pytest.raises(ValueError, match="never used again"):
                store.begin(gone)
