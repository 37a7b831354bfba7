"""Pins: what a person wants to be kept is kept, also where a pin and a deletion meet."""

import json
import os
import stat

import pytest
from test_store_good import Now, new_store, write_save

from policies.facts import CheckpointPhase, CheckpointState
from policies.retention import choose, stays_because, superfluous
from supervisor.checkpoints import pins
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import Tree

WORLD = 4


def ids(*steps):
    return tuple(f"a0001-i{step:07d}" for step in steps)


@pytest.fixture
def store(tmp_path):
    made = new_store(tmp_path / "c")
    for step in (10, 20, 30, 40):
        write_save(made, 1, step)
        assert made.seal(*ids(step)).phase is CheckpointPhase.COMPLETED
    return made


def left(store):
    return tuple(state.id for state in store.scan())


def test_a_pin_is_a_file_that_says_who_and_why(store, tmp_path):
    assert store.pin(*ids(10), "before the new data", "li.wei@login1") is True
    path = tmp_path / "c/pins/a0001-i0000010"
    found = json.loads(path.read_text())
    assert found.pop("at") > 0
    assert found == {"schema": 1, "id": "a0001-i0000010", "why": "before the new data", "who": "li.wei@login1"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.pin(*ids(10), "another reason", "somebody") is False
    assert pins.read(Tree(str(tmp_path / "c")), *ids(10)).why == "before the new data"
    assert [state.pinned for state in store.scan()] == [True, False, False, False]
    assert store.state(*ids(10)).pinned
    assert store.unpin(*ids(10)) is True
    assert store.unpin(*ids(10)) is False
    assert not any(state.pinned for state in store.scan())


def test_retention_leaves_what_is_pinned_and_does_not_count_it(store):
    store.pin(*ids(30), "why", "who")
    assert store.retain(2) == ids(10)
    assert left(store) == ids(20, 30, 40)
    store.unpin(*ids(30))
    assert store.retain(2) == ids(20)


def test_without_a_pin_the_same_save_goes(store):
    assert store.retain(2) == ids(10, 20)


def test_a_pin_that_nobody_can_read_keeps_its_save_too(store, tmp_path):
    (tmp_path / "c/pins/a0001-i0000010").write_bytes(b"\xff not json")
    assert store.retain(1) == ids(20, 30)
    assert left(store) == ids(10, 40)
    assert pins.read(Tree(str(tmp_path / "c")), *ids(10)) == pins.Pin(
        *ids(10), "its file can't be understood", "", None
    )


def test_while_pins_cannot_be_seen_nothing_is_deleted_and_all_can_be_restored(store, tmp_path):
    os.rename(tmp_path / "c/pins", tmp_path / "c/away")
    os.symlink("pins", tmp_path / "c/pins")  # a loop
    with pytest.raises(OSError, match="symbolic links"):
        store.retain(1)
    states = store.scan()
    assert [(s.phase, s.pinned) for s in states] == [(CheckpointPhase.COMPLETED, True)] * 4
    store.make_view(2, *ids(40))
    os.unlink(tmp_path / "c/pins")
    with pytest.raises(FileNotFoundError):
        store.retain(1)  # no folder of pins is not the same as no pins
    assert left(store) == ids(10, 20, 30, 40)
    store.create()
    assert store.retain(1) == ids(10, 20, 30)


def test_a_pin_that_comes_between_the_choice_and_the_mark_wins(store, tmp_path):
    other = PosixStore(str(tmp_path / "c"), WORLD, Now())

    def pins_it(name):
        if name == "before a0001-i0000010" and not os.listdir(tmp_path / "c/pins"):
            other.pin(*ids(10), "at the last moment", "who")

    racing = PosixStore(str(tmp_path / "c"), WORLD, Now(), step=pins_it)
    assert racing.retain(1) == ids(20, 30)
    assert left(store) == ids(10, 40)
    assert not os.path.exists(tmp_path / "c/deleted/a0001-i0000010")
    store.make_view(2, *ids(10))  # whole


class Killed(BaseException):
    pass


def test_a_retention_that_died_with_a_mark_on_a_pinned_save_is_called_back(store, tmp_path):
    def dies(name):
        if name == "before a0001-i0000010":
            store.pin(*ids(10), "at the last moment", "who")
        if name == "after a0001-i0000010" and os.path.exists(tmp_path / "c/deleted/a0001-i0000010"):
            raise Killed

    with pytest.raises(Killed):
        PosixStore(str(tmp_path / "c"), WORLD, Now(), step=dies).retain(1)
    assert left(store) == ids(20, 30, 40)
    assert store.retain(3) == ()
    assert left(store) == ids(10, 20, 30, 40)
    store.make_view(2, *ids(10))


def test_a_deleted_save_can_not_be_pinned(store, tmp_path):
    store.retain(3)
    with pytest.raises(pins.BeingDeletedError, match="a0001-i0000010 was deleted"):
        store.pin(*ids(10), "too late", "who")
    assert os.listdir(tmp_path / "c/pins") == []


@pytest.mark.parametrize("given", ["../seals", "a1-i1", "", "a0001-i0000010/../x"])
def test_only_the_id_of_a_save_is_a_name(store, given):
    with pytest.raises(ValueError, match="not the id of a save"):
        store.pin(given, "why", "who")
    with pytest.raises(ValueError, match="not the id of a save"):
        store.unpin(given)


def state(step, phase=CheckpointPhase.COMPLETED, *, pinned=False):
    return CheckpointState(*ids(step), 1, step, phase, pinned=pinned)


def test_the_policy_alone():
    states = (
        state(10, CheckpointPhase.BROKEN),
        state(15, CheckpointPhase.ABANDONED, pinned=True),
        state(20, pinned=True),
        state(30),
        state(40),
        state(50, pinned=True),
        state(60, CheckpointPhase.IN_PROGRESS),
    )
    assert choose(states, 1, frozenset()) == ids(10, 30)
    assert [s.id for s in superfluous(states, 1, ())] == list(ids(30))
    assert choose(states, 1, frozenset(ids(30))) == ids(10)
    only_pinned = (state(10, CheckpointPhase.BROKEN), state(20, pinned=True))
    assert choose(only_pinned, 3, frozenset()) == ()


def test_why_one_stays():
    states = (state(20, pinned=True), state(30), state(40), state(50, CheckpointPhase.BROKEN), state(60))
    needed = {ids(30)[0]: "attempt 2 was started from it"}
    assert [stays_because(s, states, 2, needed) for s in states] == [
        "pinned",
        "attempt 2 was started from it",
        "one of the newest 2 completed ones",
        "not older than the completed ones that stay: it may still explain a fault",
        "one of the newest 2 completed ones",
    ]
    assert stays_because(state(60), (state(60),), 3, {}) == "the newest completed one"
