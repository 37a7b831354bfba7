"""Sealing may be killed anywhere, done by two at once, or overtaken; a reader never sees a half state."""

import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from test_store_good import WORLD, Now, finish, items_of, new_store, only, write_save

from policies.facts import CheckpointPhase
from supervisor.checkpoints.manifest import CompletedList, Outcome
from supervisor.checkpoints.publishing import publish, read_list
from supervisor.checkpoints.sealing import settle
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.errors import NotRestorable

ID = "a0001-i0000040"
OLD = "a0001-i0000020"


class Killed(BaseException):
    """Not an Exception, as a kill is none."""


def watched_store(root, stop_at=None):
    """A store whose every boundary is looked at by a reader, and which stops at boundary `stop_at`."""
    seen = []

    def step(name):
        check_reader(root)
        seen.append(name)
        if len(seen) - 1 == stop_at:
            raise Killed(name)

    return PosixStore(str(root), WORLD, Now(), step=step), seen


def check_reader(root):
    """What a reader may rely on at any moment."""
    reader = PosixStore(str(root), WORLD, Now())
    states = {s.id: s for s in reader.scan()}
    completed = {i for i, s in states.items() if s.phase is CheckpointPhase.COMPLETED}
    assert {s.phase for s in states.values()} <= {CheckpointPhase.COMPLETED, CheckpointPhase.FRAMEWORK_DONE}
    for checkpoint in completed:
        assert reader.expected(checkpoint).checkpoint == checkpoint
        assert states[checkpoint].manifest_hash
    for checkpoint in states.keys() - completed:
        with pytest.raises(NotRestorable):
            reader.expected(checkpoint)
    pointer = root / "latest"
    assert not pointer.exists() or pointer.read_text().strip() in completed
    path = root / "completed.json"
    if path.exists():
        assert set(CompletedList.model_validate_json(path.read_bytes()).completed) <= completed


@pytest.mark.parametrize(
    "fault",
    [
        lambda root: (root / f"seals/{OLD}/manifest.json").unlink(),
        lambda root: (root / "latest").write_text(f"{ID}\n"),
        lambda root: (root / "latest").write_text("a0001-i0000020a0001-i0000040\n"),
        lambda root: (root / "completed.json").write_text('{"schema":1,'),
        lambda root: (root / "completed.json").write_text(f'{{"schema":1,"generation":9,"completed":["{ID}"]}}'),
        lambda root: (root / "saves/a0001/iter_0000020/__0_0.distcp").unlink(),
        lambda root: (root / f"seals/{ID}").mkdir() or (root / f"seals/{ID}/COMMITTED").write_text("{}"),
    ],
)
def test_the_reader_sees_a_planted_fault(tmp_path, fault):
    two_saves(tmp_path / "c")
    check_reader(tmp_path / "c")
    fault(tmp_path / "c")
    with pytest.raises((AssertionError, ValueError)):
        check_reader(tmp_path / "c")


def two_saves(root):
    store = new_store(root)
    for step in (20, 40):
        write_save(store, 1, step)
    store.seal(OLD)


def boundaries(root):
    two_saves(root)
    store, seen = watched_store(root)
    store.seal(ID)
    return seen


def test_seal_stopped_at_each_boundary_and_called_again(tmp_path):
    seen = boundaries(tmp_path / "all")
    assert [name for name in seen if name.startswith("after ")] == [
        f"after {n}" for n in ("content", "manifest.json", "OUTCOME", "COMMITTED", "completed.json", "latest")
    ]
    for at in range(len(seen)):
        root = tmp_path / f"stop{at}"
        two_saves(root)
        store, _ = watched_store(root, stop_at=at)
        with pytest.raises(Killed):
            store.seal(ID)
        check_reader(root)
        again = PosixStore(str(root), WORLD, Now()).seal(ID)
        assert again.phase is CheckpointPhase.COMPLETED
        check_reader(root)
        assert json.loads((root / "completed.json").read_text())["completed"] == [OLD, ID]
        assert (root / "latest").read_text() == f"{ID}\n"


def test_create_heals_a_list_that_a_crash_left_behind(tmp_path):
    root = tmp_path / "c"
    at = boundaries(tmp_path / "all").index("after COMMITTED")
    two_saves(root)
    with pytest.raises(Killed):
        watched_store(root, stop_at=at)[0].seal(ID)
    store = PosixStore(str(root), WORLD, Now())
    assert store.latest() == OLD
    store.create()
    assert store.latest() == ID


DIE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_store_good import WORLD, Now
from supervisor.checkpoints.store import PosixStore
left = int(sys.argv[3])
def step(name):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
PosixStore(sys.argv[2], WORLD, Now(), step=step).seal(sys.argv[4])
"""


@pytest.mark.parametrize("name", ["after manifest.json", "after OUTCOME", "after COMMITTED", "after completed.json"])
def test_seal_killed_for_real(tmp_path, name):
    at = boundaries(tmp_path / "all").index(name)
    root = tmp_path / "c"
    two_saves(root)
    here = str(pathlib.Path(__file__).parent)
    died = subprocess.run([sys.executable, "-c", DIE, here, str(root), str(at), ID], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    check_reader(root)
    assert PosixStore(str(root), WORLD, Now()).seal(ID).phase is CheckpointPhase.COMPLETED
    check_reader(root)


def test_a_save_that_changed_between_two_sealers_is_broken(tmp_path):
    at = boundaries(tmp_path / "all").index("after manifest.json")
    root = tmp_path / "c"
    two_saves(root)
    with pytest.raises(Killed):
        watched_store(root, stop_at=at)[0].seal(ID)
    other = new_store(tmp_path / "other")
    changed = write_save(other, items=items_of(1, 40, word="rink"))  # whole in itself, and of the same sizes
    shutil.copytree(changed, root / "saves/a0001/iter_0000040", dirs_exist_ok=True)
    state = PosixStore(str(root), WORLD, Now()).seal(ID)
    assert state.phase is CheckpointPhase.BROKEN
    assert "manifest that was written for them before" in state.reasons[0]


def _seal_all(root, gate, answers):
    store = PosixStore(root, WORLD, time.time, settle_s=0.0)
    gate.wait()
    answers.put([store.seal(f"a0001-i{step:07d}") for step in range(1, 9)])


def test_two_processes_seal_the_same_saves_at_once(tmp_path):
    store = new_store(tmp_path / "c")
    for step in range(1, 9):
        path = write_save(store, 1, step)
        if step == 5:
            os.unlink(os.path.join(path, "__1_0.distcp"))
    spawn = multiprocessing.get_context("spawn")
    gate, answers = spawn.Barrier(2), spawn.SimpleQueue()
    both = [spawn.Process(target=_seal_all, args=(str(tmp_path / "c"), gate, answers)) for _ in range(2)]
    for process in both:
        process.start()
    first, second = answers.get(), answers.get()
    for process in both:
        process.join()
    assert [s.id for s in first if s.phase is CheckpointPhase.BROKEN] == ["a0001-i0000005"]
    assert first == second == list(store.scan())
    listed = read_list(Tree(str(tmp_path / "c"))).completed
    assert sorted(listed) == [f"a0001-i{step:07d}" for step in range(1, 9) if step != 5]
    assert store.latest() == listed[-1]


# --- the coordinator that thaws ----------------------------------------------------------------------------------


def test_an_abandoned_save_is_never_sealed(tmp_path):
    store = new_store(tmp_path / "c")
    path = write_save(store, metadata=False)
    state = store.abandon(ID, "attempt 1 was fenced")
    assert (state.phase, state.reasons) == (CheckpointPhase.ABANDONED, ("attempt 1 was fenced",))
    finish(path)  # its coordinator thaws, and all is there and right
    assert only(store) == store.seal(ID) == state
    assert not (tmp_path / f"c/seals/{ID}/COMMITTED").exists()
    assert store.latest() is None
    with pytest.raises(NotRestorable, match="abandoned"):
        store.make_view(2, ID)


def test_a_save_abandoned_before_anything_was_written_is_never_sealed(tmp_path):
    store = new_store(tmp_path / "c")
    store.abandon(ID, "fenced")
    write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.ABANDONED


@pytest.mark.parametrize("moment", ["before content", "before manifest.json", "before OUTCOME"])
def test_abandoned_while_it_is_being_sealed(tmp_path, moment):
    other = new_store(tmp_path / "c")

    def step(name):
        if name == moment:
            other.abandon(ID, "fenced")

    store = PosixStore(str(tmp_path / "c"), WORLD, Now(), step=step)
    write_save(store)
    assert store.seal(ID).phase is CheckpointPhase.ABANDONED
    assert not (tmp_path / f"c/seals/{ID}/COMMITTED").exists()


def test_one_who_died_while_abandoning_is_finished_by_the_sealer(tmp_path):
    store = new_store(tmp_path / "c")
    write_save(store)
    store.begin(ID)

    def step(name):
        if name == "after OUTCOME":
            raise Killed

    with pytest.raises(Killed):
        settle(Tree(str(tmp_path / "c")), SaveId(1, 40), Outcome(outcome="ABANDONED", reasons=("fenced",)), step)
    assert store.seal(ID).phase is CheckpointPhase.ABANDONED
    assert only(store).reasons == ("fenced",)


def test_a_completed_save_can_not_be_abandoned(tmp_path):
    store = new_store(tmp_path / "c")
    write_save(store)
    done = store.seal(ID)
    assert store.abandon(ID, "late") == done == only(store)


# --- readers of the published files ------------------------------------------------------------------------------


def pointers_seen(root, write):
    """Read the pointer in a loop while `write` runs; returns every content that was seen."""
    seen, begun, ended = set(), threading.Event(), threading.Event()

    def read():
        while not ended.is_set():
            seen.add((root / "latest").read_bytes())
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    write(seen)
    ended.set()
    reader.join()
    return seen


WHOLE = {f"a0001-i{step:07d}\n".encode() for step in range(1, 9)}


def test_the_pointer_is_never_torn(tmp_path):
    store = new_store(tmp_path / "c")
    for step in range(1, 9):
        write_save(store, 1, step)
    store.seal("a0001-i0000001")

    def write(_seen):
        for step in range(2, 9):
            store.seal(f"a0001-i{step:07d}")

    assert pointers_seen(tmp_path / "c", write) <= WHOLE
    assert store.latest() == "a0001-i0000008"


def test_a_pointer_written_in_place_is_seen_torn(tmp_path):
    def write(seen):
        deadline = time.monotonic() + 60
        while seen <= WHOLE and time.monotonic() < deadline:
            (tmp_path / "latest").write_bytes(b"a0001-i0000002\n")

    (tmp_path / "latest").write_bytes(b"a0001-i0000001\n")
    assert b"" in pointers_seen(tmp_path, write)


def test_one_that_publishes_an_old_list_sees_it_and_puts_it_right(tmp_path):
    root = tmp_path / "c"
    store = new_store(root)
    write_save(store, 1, 20)
    write_save(store, 1, 40)
    other = PosixStore(str(root), WORLD, Now())
    overtaken = []

    def step(name):
        if name == "before completed.json" and not overtaken:
            overtaken.append(name)
            other.seal(ID)  # a newer list appears between the look and the write

    slow = PosixStore(str(root), WORLD, Now(), step=step)
    slow.seal(OLD)
    assert overtaken
    assert sorted(read_list(Tree(str(root))).completed) == [OLD, ID]


@pytest.mark.parametrize("rubbish", [b"", b"{", b'{"schema":1,"generation":-1,"completed":[]}', b"\xff\n"])
def test_rubbish_in_the_published_files_is_replaced(tmp_path, rubbish):
    store = new_store(tmp_path / "c")
    write_save(store)
    store.seal(ID)
    for name in ("latest", "completed.json"):
        (tmp_path / "c" / name).write_bytes(rubbish)
    assert store.latest() is None
    publish(Tree(str(tmp_path / "c")), lambda _name: None)
    assert store.latest() == ID
    assert read_list(Tree(str(tmp_path / "c"))).completed == (ID,)
