"""The store reads by nodes: seals, views and scrubs come out as by threads, whatever one of the nodes says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xxhash
from test_readers import Node, SaysBroken, Scene, WrongSum
from test_seal_reading import flip
from test_store_good import WORLD, Now, write_save

from policies.facts import CheckpointPhase
from supervisor.checkpoints.readers import Readers
from supervisor.checkpoints.readers_store import StoreReading
from supervisor.checkpoints.reading.by_threads import ByThreads
from supervisor.checkpoints.reading.room import Room
from supervisor.checkpoints.reading.throttle import Pace
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

ID = "a0001-i0000040"
OTHER = "a0001-i0000050"


def store_of(root, nodes):
    """A store whose saves are read by these nodes; and what was told of them."""
    scene = Scene(nodes)
    urgent = Readers(ByThreads(2), scene.crew, scene.tell, first=True, worth=0)
    pace = scene.here.pace
    reading = StoreReading(2, None, pace, scene.readers, urgent, Pace(), Room(1 << 40))
    store = PosixStore(str(root), WORLD, Now(), settle_s=1.0, reading=reading)
    store.create()
    return store, scene


@pytest.mark.parametrize("liar", [Node, WrongSum, SaysBroken])
def test_a_good_save_is_sealed_with_its_true_sums_and_its_view_is_made(tmp_path, liar):
    store, scene = store_of(tmp_path / "c", {"n1": liar(), "n2": Node()})
    path = Path(write_save(store))
    state = store.seal(ID)
    assert (state.phase, state.reasons) == (CheckpointPhase.COMPLETED, ())
    sums = {name: entry.xxh3 for name, entry in store.committed(ID).manifest.files.items()}
    assert sums == {one.name: xxhash.xxh3_128_hexdigest(one.read_bytes()) for one in path.iterdir() if one.is_file()}
    assert bool(scene.log) is (liar is not Node)
    assert os.path.isdir(store.make_view(2, ID))
    assert store.scrub(ID).phase is CheckpointPhase.COMPLETED
    scene.pool.shutdown()


def test_one_that_lies_when_the_view_is_made_condemns_nothing(tmp_path):
    store, scene = store_of(tmp_path / "c", {"n1": Node(), "n2": Node()})
    write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    scene.nodes["n1"] = WrongSum()
    scene.nodes["n2"] = SaysBroken()
    store.make_view(2, ID)
    assert store.state(ID).phase is CheckpointPhase.COMPLETED
    assert len(scene.log) == 2
    scene.pool.shutdown()


def test_what_is_broken_is_told_with_the_reasons_of_this_machine(tmp_path):
    store, scene = store_of(tmp_path / "c", {"n1": Node(), "n2": Node()})
    flip(write_save(store), "__3_0.distcp", b"rank 3 attempt")
    state = store.seal(ID)
    assert state.phase is CheckpointPhase.BROKEN
    assert state.reasons == ("CRC __3_0.distcp: w at 0: archive/data/0",)
    scene.pool.shutdown()


def test_rot_after_the_seal_is_found_by_nodes_before_the_view_is_made(tmp_path):
    store, scene = store_of(tmp_path / "c", {"n1": Node(), "n2": Node()})
    path = write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    flip(path, "__3_0.distcp", b"rank 3 attempt")
    with pytest.raises(NotRestorable, match=r"SUM __3_0\.distcp"):
        store.make_view(2, ID)
    scene.pool.shutdown()


def test_a_seal_for_which_there_is_no_memory_waits_and_says_so(tmp_path):
    seen = []

    class Meanwhile(ByThreads):
        """While one save is read, the other is to be sealed."""

        __slots__ = ()

        def read(self, *arguments):
            if not seen:
                seen.append(store.seal(OTHER))
            return super().read(*arguments)

    pace = Pace()
    reading = StoreReading(2, None, pace, Meanwhile(2, pace), ByThreads(2), Pace(), Room(0))
    store = PosixStore(str(tmp_path / "c"), WORLD, Now(), settle_s=1.0, reading=reading)
    store.create()
    for step in (40, 50):
        write_save(store, 1, step)
    assert store.seal(ID).phase is CheckpointPhase.COMPLETED
    assert seen[0].phase is CheckpointPhase.NOT_YET
    assert "the metadata of 1 other save is being read" in seen[0].reasons[0]
    assert store.seal(OTHER).phase is CheckpointPhase.COMPLETED
