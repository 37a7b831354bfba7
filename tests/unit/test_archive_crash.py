"""Copying, restoring and retaining may be killed anywhere: what is listed as completed is never broken, and one is always left."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from archivecases import ID, RUN, Killed, archive_of, data_of, look_at, lose, made, recover, sealed_store

from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

Phase = CheckpointPhase
OLD, NEW = "a0001-i0000020", "a0001-i0000060"


class Case:
    """A store and an archive, both of which a reader looks at on each boundary of whatever is done."""

    def __init__(self, folder, good):
        self.folder = folder
        self.root, self.place = folder / "c", folder / "archive"
        self.good = good

    def copy_to(self, folder):
        shutil.copytree(self.folder, folder, symlinks=True)
        return Case(folder, self.good)

    def check(self, left=()):
        """Whatever is listed as completed is whole. `left`: saves of which at least one copy must be listed in the archive."""
        archive = archive_of(self.place, look_at(self.root))
        archived = archive.scan()
        assert not isinstance(archived, Unreadable), archived
        done = [s.id for s in archived if s.phase is Phase.COMPLETED]
        standing = archive._shelf.standing()
        vouched = {str(save) for save in standing.copied - standing.deleted - standing.damaged}
        # What a look would find out by sizes must not have been vouched for either.
        for one in vouched.union(done):
            assert data_of(self.place / f".bulk/{RUN}/saves/{one}").items() >= self.good[one].items()
        assert not left or set(done) & set(left)
        seen = look_at(self.root).scan()
        if not isinstance(seen, Unreadable):
            for state in seen:
                assert state.phase in {Phase.COMPLETED, Phase.BROKEN}
                if state.phase is Phase.COMPLETED:
                    assert data_of(look_at(self.root).place(state.id).data) == self.good[state.id]
                if state.archived:
                    assert state.id in {s.id for s in archived}
        return done

    def stopping(self, stop_at, left=()):
        """A step that looks, counts, and stops at one boundary."""
        seen = []

        def step(name):
            self.check(left)
            seen.append(name)
            if len(seen) - 1 == stop_at:
                raise Killed(name)

        return step, seen


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three saves in the store, nothing in the archive."""
    folder = tmp_path_factory.mktemp("saved")
    store = sealed_store(folder / "c", OLD, ID, NEW)
    made(folder / "archive", store)
    return Case(folder, {one: data_of(store.place(one).data) for one in (OLD, ID, NEW)})


@pytest.fixture(scope="module")
def archived(saved, tmp_path_factory):
    """All three archived."""
    case = saved.copy_to(tmp_path_factory.mktemp("archived") / "x")
    for one in (OLD, ID, NEW):
        archive_of(case.place, look_at(case.root)).copy(one)
    return case


def every_boundary(case, tmp_path, run, left=()):
    """Run it whole, then stopped at each boundary; yields each stopped case after it was looked at."""
    whole = case.copy_to(tmp_path / "whole")
    step, seen = whole.stopping(None, left)
    run(whole, step)
    whole.check(left)
    for at in range(len(seen)):
        stopped = case.copy_to(tmp_path / f"stop{at}")
        step, _ = stopped.stopping(at, left)
        with pytest.raises(Killed):
            run(stopped, step)
        stopped.check(left)
        yield seen[at], stopped


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (lambda c: (c.place / f".bulk/{RUN}/saves/{ID}/.metadata").write_bytes(b"x" * 300), "archive"),
        (lambda c: (c.root / "saves/a0001/iter_0000040/__0_0.distcp").write_bytes(b"x"), "store"),
        (lambda c: shutil.rmtree(c.place / f"{RUN}/copied/{ID}"), "mark"),
        (lambda c: shutil.rmtree(c.place), "all"),
    ],
)
def test_the_reader_sees_a_planted_fault(archived, tmp_path, fault, what):
    case = archived.copy_to(tmp_path / "x")
    case.check([ID])
    fault(case)
    with pytest.raises(AssertionError):
        case.check([ID])


def test_copying_killed_anywhere(saved, tmp_path):
    def copy(case, step):
        archive_of(case.place, look_at(case.root), step=step).copy(ID)

    names = []
    for name, stopped in every_boundary(saved, tmp_path, copy):
        names.append(name)
        copy(stopped, lambda _: None)
        assert stopped.check() == [ID]
        assert look_at(stopped.root).state(ID).archived
        assert not list(stopped.place.rglob("*.tmp"))
    assert set(names) == {
        f"{when} {what}" for when in ("before", "after") for what in ("manifest", "file", "copied", "ARCHIVED")
    }


def test_restoring_killed_anywhere(archived, tmp_path):
    lost = archived.copy_to(tmp_path / "lost")
    lose(lost.root)

    def restore(case, step):
        archive_of(case.place, look_at(case.root), step=step).restore(ID)

    names = []
    for name, stopped in every_boundary(lost, tmp_path, restore, [ID]):
        names.append(name)
        restore(stopped, lambda _: None)
        assert os.listdir(stopped.root / "restored") == [f"{ID}.1"]  # what was begun is finished
        assert sorted(os.listdir(stopped.root / f"restored/{ID}.1")) == [
            "ARCHIVED",
            "RESTORED",
            "iter_0000040",
            "manifest.json",
        ]
        (state,) = look_at(stopped.root).scan()
        assert (state.id, state.phase) == (ID, Phase.COMPLETED)
        assert data_of(look_at(stopped.root).make_view(9, ID) + "/iter_0000040") == lost.good[ID]
    assert {"before a copy's folder", "after manifest.json", "after file", "before RESTORED", "after RESTORED"} <= set(
        names
    )


def test_retaining_killed_anywhere(archived, tmp_path):
    def retain(case, step):
        archive_of(case.place, look_at(case.root), step=step).retain(1, ())

    for _, stopped in every_boundary(archived, tmp_path, retain, [NEW]):
        retain(stopped, lambda _: None)
        assert stopped.check([NEW]) == [NEW]
        assert os.listdir(stopped.place / f".bulk/{RUN}/saves") == [NEW]
        assert [s.id for s in look_at(stopped.root).scan() if s.archived] == [NEW]
        left = archive_of(stopped.place, look_at(stopped.root)).scan()
        assert [s.id for s in left] == [NEW]


def test_healing_killed_anywhere(archived, tmp_path):
    case = archived.copy_to(tmp_path / "x")
    rotten = case.place / f".bulk/{RUN}/saves/{ID}/__1_0.distcp"
    data = rotten.read_bytes()
    rotten.write_bytes(data[:-1] + b"!")
    empty = PosixStore(str(tmp_path / "empty"), 4, look_at(case.root)._clock)
    with pytest.raises(NotRestorable):
        archive_of(case.place, empty).restore(ID)

    def copy(case, step):
        archive_of(case.place, look_at(case.root), step=step).copy(ID)

    names = []
    for name, stopped in every_boundary(case, tmp_path, copy, [NEW]):
        names.append(name)
        copy(stopped, lambda _: None)
        assert stopped.check() == [OLD, ID, NEW]
    assert "after healing" in names


def test_the_record_killed_anywhere(archived, tmp_path):
    case = archived.copy_to(tmp_path / "x")
    (case.folder / "journal").mkdir()
    (case.folder / "journal/000001.jsonl").write_bytes(os.urandom(5 << 20))

    def keep(case, step):
        archive_of(case.place, look_at(case.root), step=step).keep_record(str(case.folder))

    for at, (_, stopped) in enumerate(every_boundary(case, tmp_path, keep)):
        if at % 5:
            continue  # each copies 5 MB, and pieces are alike
        keep(stopped, lambda _: None)
        back = stopped.folder / "back"
        recover(stopped.place, back)
        assert (back / "journal/000001.jsonl").read_bytes() == (case.folder / "journal/000001.jsonl").read_bytes()


DIE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from archivecases import archive_of, look_at
left = int(sys.argv[5])
def step(name):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
getattr(archive_of(sys.argv[2], look_at(sys.argv[3]), step=step), sys.argv[4])("a0001-i0000040")
"""


@pytest.mark.parametrize(("what", "at"), [("copy", 5), ("copy", 9), ("restore", 6), ("restore", 10)])
def test_killed_for_real(saved, archived, tmp_path, what, at):
    case = (saved if what == "copy" else archived).copy_to(tmp_path / "x")
    if what == "restore":
        lose(case.root)
    here = str(pathlib.Path(__file__).parent)
    words = [sys.executable, "-c", DIE, here, str(case.place), str(case.root), what, str(at)]
    assert subprocess.run(words, check=False, timeout=60).returncode == -signal.SIGKILL
    case.check()
    getattr(archive_of(case.place, look_at(case.root)), what)(ID)
    assert ID in case.check()
    assert look_at(case.root).state(ID).archived
