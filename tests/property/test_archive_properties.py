"""Whatever happens to an archive: what comes back is what was sealed or nothing, and one that is good is always left."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from archivecases import RUN, Killed, archive_of, data_of, flipped, look_at, made, sealed_store
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_good import WORLD, Now

from policies.facts import CheckpointPhase
from policies.retention import by_age
from slurm.cluster import Unreadable
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

Phase = CheckpointPhase
IDS = ["a0001-i0000010", "a0001-i0000020", "a0002-i0000015", "a0002-i0000030"]
SHOTS = settings(max_examples=20, deadline=None)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Four saves in a store, all archived, and their bytes."""
    folder = tmp_path_factory.mktemp("base")
    store = sealed_store(folder / "c", *IDS)
    archive = made(folder / "archive", store)
    for one in IDS:
        archive.copy(one)
    return folder, {one: data_of(store.place(one).data) for one in IDS}


def damage(root, draw):
    """One thing that may happen to a file: a flipped bit, an end cut off, more at its end, gone, another's content, a folder."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.name != ".relight-objects")
    one = draw(st.sampled_from(files))
    kind = draw(st.sampled_from(["flip", "cut", "more", "gone", "other", "folder"]))
    data = one.read_bytes()
    one.unlink()
    if kind == "flip":
        one.write_bytes(flipped(data) if data else b"x")
    elif kind == "cut":
        one.write_bytes(data[: draw(st.integers(0, max(0, len(data) - 1)))])
    elif kind == "more":
        one.write_bytes(data + b"\0")
    elif kind == "other":
        other = draw(st.sampled_from([p for p in files if p != one]))
        shutil.copyfile(other, one)
    elif kind == "folder":
        one.mkdir()
    return kind, one.relative_to(root)


@SHOTS
@given(st.data())
def test_what_comes_back_is_what_was_sealed_or_nothing(base, data):
    folder, good = base
    with tempfile.TemporaryDirectory() as work:
        place, root = Path(work) / "archive", Path(work) / "c"
        shutil.copytree(folder / "archive", place)
        for _ in range(data.draw(st.integers(1, 3))):
            damage(place, data.draw)
        for one in IDS:
            store = PosixStore(str(root), WORLD, Now())
            try:
                archive_of(place, store).restore(one)
            except (NotRestorable, OSError):
                continue
            assert data_of(store.make_view(IDS.index(one), one) + f"/iter_{int(one[-7:]):07d}") == good[one]
        store = PosixStore(str(root), WORLD, Now())
        seen = store.scan()
        for state in () if isinstance(seen, Unreadable) else seen:
            assert state.phase is Phase.COMPLETED
            assert data_of(store.place(state.id).data) == good[state.id]


@SHOTS
@given(st.data())
def test_whatever_is_damaged_is_healed_by_copying_again(base, data):
    """Of what the archive does not say that it was deleted."""
    folder, good = base
    with tempfile.TemporaryDirectory() as work:
        place = Path(work) / "archive"
        shutil.copytree(folder / "archive", place)
        victim = data.draw(st.sampled_from(IDS))
        files = sorted((place / f".bulk/{RUN}/saves/{victim}").iterdir())
        one = data.draw(st.sampled_from(files))
        content = one.read_bytes()
        one.unlink()
        kind = data.draw(st.sampled_from(["flip", "cut", "gone"]))
        if kind != "gone":
            one.write_bytes(flipped(content) if kind == "flip" else content[:-1])
        empty = PosixStore(str(Path(work) / "empty"), WORLD, Now())
        with pytest.raises(NotRestorable) as refused:
            archive_of(place, empty).restore(victim)
        assert not refused.value.not_yet
        archive_of(place, look_at(folder / "c")).copy(victim)
        archive_of(place, empty).restore(victim)
        assert data_of(empty.place(victim).data) == good[victim]


@SHOTS
@given(
    st.integers(1, 4),
    st.sets(st.sampled_from(IDS), max_size=2),
    st.sets(st.sampled_from(IDS), max_size=3),
    st.integers(0, 30),
)
def test_retention_that_is_stopped_anywhere(base, keep, protect, rotten, stop_at):
    folder, good = base
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(folder, work, dirs_exist_ok=True, symlinks=True)
        place, root = Path(work) / "archive", Path(work) / "c"
        for one in rotten:
            os.truncate(place / f".bulk/{RUN}/saves/{one}/.metadata", 3)
        before = archive_of(place, look_at(root)).scan()
        assert {s.id for s in before if s.phase is Phase.BROKEN} == rotten
        left = [stop_at]

        def step(_name):
            states = archive_of(place, look_at(root)).scan()
            done = by_age(states)
            for state in done:
                assert data_of(place / f".bulk/{RUN}/saves/{state.id}") == good[state.id]
            assert [s.id for s in done[-1:]] == [s.id for s in by_age(before)[-1:]]
            assert {s.id for s in look_at(root).scan() if s.archived} <= {s.id for s in states}
            if left[0] == 0:
                raise Killed
            left[0] -= 1

        gone = set()
        try:
            gone |= set(archive_of(place, look_at(root), step=step).retain(keep, protect))
        except Killed:
            gone |= set(archive_of(place, look_at(root)).retain(keep, protect))
        states = archive_of(place, look_at(root)).scan()
        kept = {s.id for s in states}
        assert protect <= kept
        assert len([s for s in by_age(states) if s.id not in protect]) <= keep
        assert set(os.listdir(place / f".bulk/{RUN}/saves")) == kept
        assert [s.id for s in by_age(states)[-keep:]] == [s.id for s in by_age(before)[-keep:]]
        assert not gone & kept
