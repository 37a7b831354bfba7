"""A pin that was given is kept: over all stores, and at every moment at which a deletion may be under way or die."""

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import CheckpointPhase, CheckpointState
from policies.retention import by_age, choose, stays_because
from supervisor.bench import fake_saves
from supervisor.checkpoints import pins
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree

Phase = CheckpointPhase


@st.composite
def states(draw):
    ids = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), unique=True, max_size=12))
    return tuple(
        CheckpointState(
            str(SaveId(attempt, step)), attempt, step, draw(st.sampled_from(Phase)), pinned=draw(st.booleans())
        )
        for attempt, step in ids
    )


@given(states(), st.integers(1, 4))
def test_what_is_chosen_beside_pins(saves, keep):
    chosen = set(choose(saves, keep, frozenset()))
    assert not chosen & {s.id for s in saves if s.pinned}
    loose = [s for s in by_age(saves) if not s.pinned]
    assert {s.id for s in loose[-keep:]} == {s.id for s in loose} - chosen
    # Pins change nothing for the others: they are chosen as if what is pinned were not there.
    assert chosen == set(choose([s for s in saves if not s.pinned], keep, frozenset()))
    for one in saves:
        if one.id not in chosen:
            assert stays_because(one, saves, keep, {})


class Killed(BaseException):
    pass


def store_of(root, kind=PosixStore, **more):
    at = [time.time() + 3600]

    def clock():
        at[0] += 1
        return at[0]

    return kind(root, 1, clock, **more)


@cache
def four_saves():
    """A store of four completed saves; each trial works on a copy."""
    root = tempfile.mkdtemp(prefix="pins-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    store = store_of(root)
    store.create()
    for step in range(1, 5):
        path = os.path.join(store.save_dir(1), f"iter_{step:07d}")
        items = [fake_saves.Chunk("w", "uint8", (8,), (0,), (8,), "__0_0.distcp", b"elements")]
        fake_saves.write(path, items, iteration=step)
        assert store.seal(str(SaveId(1, step))).phase is Phase.COMPLETED
    return root


def broken_promise(pin_at, die_at, which, kind=PosixStore):
    """Pin the save `which` at one boundary of a retention that dies at another. What was promised and not kept, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "c")
        shutil.copytree(four_saves(), root, symlinks=True)
        store, wanted = store_of(root, kind), str(SaveId(1, which))
        seen, promised = [0], []

        def boundary(_name):
            if seen[0] == pin_at:
                with contextlib.suppress(pins.BeingDeletedError):
                    promised.append(store_of(root).pin(wanted, "why", "who"))
            if seen[0] == die_at:
                raise Killed
            seen[0] += 1

        with contextlib.suppress(Killed):
            store_of(root, kind, step=boundary).retain(1)
        store.retain(1)
        left = {state.id: state.phase for state in store.scan()}
        gone = set(os.listdir(os.path.join(root, "deleted")))
        if left.get(str(SaveId(1, 4))) is not Phase.COMPLETED:
            return "the newest is gone"
        if gone & set(left) or len(gone) + len(left) != 4:
            return "it is deleted and there, or neither"
        if promised:
            data = os.listdir(os.path.join(root, "saves/a0001", f"iter_{which:07d}")) if wanted in left else []
            return "" if left.get(wanted) is Phase.COMPLETED and ".metadata" in data else "what was pinned is gone"
        return "" if pins.read(Tree(root), wanted) is None else "a pin that was refused stands"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 3))
def test_a_pin_at_any_moment_of_a_retention_that_may_die_at_any_other(pin_at, die_at, which):
    assert broken_promise(pin_at, die_at, which) == ""


class LooksOnce(PosixStore):
    """Looks for pins before it marks saves as deleted, and not again: a pin in between is lost."""

    def _spare_pinned(self, _marked_now):
        return frozenset()


def test_a_store_that_looks_once_is_found_out():
    found = {broken_promise(pin_at, 99, 1, LooksOnce) for pin_at in range(8)}
    assert "what was pinned is gone" in found
