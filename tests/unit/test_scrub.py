"""Completed saves are read again: rot is found, a good one is marked, and whoever is in a hurry goes first."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from test_store_good import Now, new_store, write_save

from policies.facts import CheckpointPhase
from supervisor.checkpoints import scrubbing
from supervisor.checkpoints.reading.by_threads import ByThreads
from supervisor.checkpoints.reading.throttle import CancelledError, Pace, Throttle
from supervisor.checkpoints.scrubbing import Scrubs, Turns
from supervisor.checkpoints.sealing import NotYetError
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

ONE = "a0001-i0000040"


def sealed(root: Path, **more: object) -> tuple[PosixStore, str]:
    store = new_store(root, **more)
    path = write_save(store)
    assert store.seal(ONE).phase is CheckpointPhase.COMPLETED
    return store, path


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(20)
        byte = file.read(1)
        file.seek(20)
        file.write(bytes([byte[0] ^ 1]))


def test_a_good_one_is_marked_each_time(tmp_path: Path) -> None:
    store, _ = sealed(tmp_path, clock=Now())
    assert store.state(ONE).read_at is None
    first = store.scrub(ONE).read_at
    assert first is not None
    again = store.scrub(ONE).read_at
    assert again is not None
    assert again > first
    assert store.scan()[0].read_at == again  # type: ignore[index]


def test_rot_is_found_and_another_tool_sees_the_reasons(tmp_path: Path) -> None:
    store, path = sealed(tmp_path)
    flip(os.path.join(path, "__2_0.distcp"))
    state = store.scrub(ONE)
    assert state.phase is CheckpointPhase.BROKEN
    assert "__2_0.distcp" in state.reasons[0]
    assert state.read_at is None
    with pytest.raises(NotRestorable):
        store.scrub(ONE)


def test_what_is_not_completed_is_not_read(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    write_save(store)
    with pytest.raises(NotRestorable):
        store.scrub(ONE)
    assert store.state(ONE).phase is CheckpointPhase.FRAMEWORK_DONE


@pytest.mark.parametrize("text", [b"", b"{", b'{"schema":1,"at":-1}', b'{"schema":1,"at":"1"}', b"x" * 9999])
def test_a_mark_that_is_none_only_means_one_more_reading(tmp_path: Path, text: bytes) -> None:
    store, _ = sealed(tmp_path)
    mark = tmp_path / "seals" / ONE / scrubbing.READ
    mark.write_bytes(text)
    state = store.state(ONE)
    assert (state.phase, state.read_at) == (CheckpointPhase.COMPLETED, None)
    assert store.scrub(ONE).read_at is not None


def test_one_that_is_deleted_meanwhile_is_not_called_broken(tmp_path: Path) -> None:
    store, path = sealed(tmp_path)
    write_save(store, step=60)
    store.seal("a0001-i0000060")
    committed = store.committed(ONE)
    flip(os.path.join(path, "__2_0.distcp"))
    store.retain(1)
    assert store._is_gone(committed)
    assert not store._is_gone(store.committed("a0001-i0000060"))


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each slice is one file here; the third is cut off, and only what is left is read afterwards."""
    store, _ = sealed(tmp_path)
    read: list[str] = []
    scrubs = Scrubs(Interrupted(read, at=3), ByThreads(2), Pace(), slice_bytes=1)
    committed = store.committed(ONE)
    with pytest.raises(NotYetError, match="given way"):
        scrubs.read(committed)
    assert len(read) == 3
    assert scrubs.read(committed) == ()
    assert len(read) == len(committed.manifest.files) + 1


class Interrupted(Turns):
    """The turn is wanted by somebody else as soon as the so-manyth slice begins."""

    def __init__(self, read: list[str], at: int) -> None:
        super().__init__(one=True)
        self._read, self._at = read, at

    def scrub(self, throttle: Throttle):  # type: ignore[no-untyped-def,override]
        self._read.append("slice")
        if len(self._read) == self._at:
            throttle.cancel()
        return super().scrub(throttle)


def test_a_seal_takes_the_turn_of_a_scrub_and_not_of_another_seal() -> None:
    turns, reading, over = Turns(one=True), threading.Event(), threading.Event()
    ended: list[str] = []

    def scrub() -> None:
        throttle = Throttle(1.0)  # a byte a second: it never ends by itself
        try:
            with turns.scrub(throttle):
                reading.set()
                throttle.take(1000)
                throttle.take(1000)
        except NotYetError as error:
            ended.append(str(error))
        over.set()

    thread = threading.Thread(target=scrub)
    thread.start()
    assert reading.wait(10)
    with turns.seal():
        assert over.wait(10)
        with pytest.raises(NotYetError), turns.seal():
            pass
        with pytest.raises(NotYetError), turns.scrub(Throttle(None)):
            pass
    thread.join()
    assert ended == ["it has given way to something more urgent"]
    with turns.scrub(Throttle(None)):
        pass


def test_without_a_limit_seals_do_not_wait_for_a_scrub() -> None:
    turns = Turns(one=False)
    throttle = Throttle(None)
    with turns.scrub(throttle), turns.seal():
        throttle.take(1)


def test_a_view_stops_a_scrub(tmp_path: Path) -> None:
    store, _ = sealed(tmp_path)
    throttle = Throttle(None)
    with store._turns.scrub(throttle):
        throttle.take(1)
        store.make_view(2, ONE)
        with pytest.raises(CancelledError):
            throttle.take(1)
