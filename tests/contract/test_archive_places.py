"""The archive at a path and in a bucket: what comes back is what was sealed, and each fault is seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import xxhash
from archivecases import ID, RUN, WORLD, Now, bulk_file, data_of, flipped, look_at, lose, sealed_store
from test_store_good import write_save

pytest.importorskip("obstore", reason="pip install 'relight[objects]'")

import obstore

from policies.facts import CheckpointPhase
from slurm.cluster import Unreadable
from supervisor.bench.s3_server import Server, has_moto, s3_server
from supervisor.checkpoints.archive import Archive, open_archive, recover_record
from supervisor.checkpoints.objects.bulk import FOLDER
from supervisor.checkpoints.objects.frame import fresh_nonce, pack
from supervisor.checkpoints.objects.opening import bucket
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable, UserError

SHARD = "__1_0.distcp"
OLDER = "a0001-i0000020"
Phase = CheckpointPhase
pytestmark = pytest.mark.xdist_group("object-stores")


@dataclass
class Place:
    """Where the archive is, and how to spoil it. `write` None removes the file."""

    url: str
    config: dict[str, str] | None
    change: Callable[[str, Callable[[bytes], bytes] | None], None]
    change_document: Callable[[str, bytes | None], None]
    vanish: Callable[[], None]
    files: Callable[[str], list[str]]

    def open(self, store: PosixStore, **more: Any) -> Archive:
        return open_archive(self.url, RUN, store, Now(), threads=2, config=self.config, **more)

    def recover(self, into: Path) -> tuple[str, ...]:
        return recover_record(self.url, RUN, str(into), self.config)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as running:
        yield running


def on_disk(root: Path) -> Place:
    def change(name: str, how: Callable[[bytes], bytes] | None) -> None:
        path = bulk_file(root, ID, name)
        data = path.read_bytes()
        path.unlink()
        if how is not None:
            path.write_bytes(how(data))

    def change_document(key: str, data: bytes | None) -> None:
        folder = root / RUN / key
        shutil.rmtree(folder)
        if data is not None:
            folder.mkdir()
            (folder / "@0000001").write_bytes(data)

    return Place(
        str(root),
        None,
        change,
        change_document,
        vanish=lambda: shutil.rmtree(root),
        files=lambda checkpoint: sorted(p.name for p in (root / FOLDER / RUN / "saves" / checkpoint).glob("*")),
    )


def in_a_bucket(running: Server) -> Place:
    url = running.url(uuid4().hex)
    store = bucket(url, running.config)

    def change(name: str, how: Callable[[bytes], bytes] | None) -> None:
        key = f"{FOLDER}/{RUN}/saves/{ID}/{name}"
        data = bytes(obstore.get(store, key).bytes())
        obstore.delete(store, key) if how is None else obstore.put(store, key, how(data))

    def change_document(key: str, data: bytes | None) -> None:
        obstore.delete(store, f"{RUN}/{key}") if data is None else obstore.put(store, f"{RUN}/{key}", data)

    def files(checkpoint: str) -> list[str]:
        listed = obstore.list(store, f"{FOLDER}/{RUN}/saves/{checkpoint}")
        return sorted(one["path"].rpartition("/")[2] for batch in listed for one in batch)

    def vanish() -> None:
        obstore.delete(store, [one["path"] for batch in obstore.list(store) for one in batch])

    return Place(url, dict(running.config), change, change_document, vanish, files)


@pytest.fixture(
    params=[
        "posix",
        pytest.param("s3", marks=pytest.mark.skipif(not has_moto(), reason="needs moto[s3], flask, flask-cors")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return on_disk(tmp_path / "archive") if request.param == "posix" else in_a_bucket(request.getfixturevalue("server"))


def only(archive: Archive) -> Any:
    states = archive.scan()
    assert isinstance(states, tuple), states
    (state,) = states
    return state


def archived(place: Place, root: Path) -> tuple[PosixStore, Archive]:
    """A store with one save, and its copy."""
    store = sealed_store(root, ID)
    archive = place.open(store)
    archive.make()
    archive.copy(ID)
    return store, archive


def test_a_copy_is_listed_when_it_is_whole(place: Place, tmp_path: Path) -> None:
    store = sealed_store(tmp_path / "c", ID)
    archive = place.open(store)
    assert isinstance(archive.scan(), Unreadable)  # never made, or its mount is gone: who can tell
    archive.make()
    assert archive.scan() == ()
    steps: list[tuple[int, int, str]] = []
    archive = place.open(store, progress=lambda *said: steps.append(said))
    assert not store.state(ID).archived
    archive.copy(ID)
    state, (sealed,) = only(archive), store.scan()
    assert (state.id, state.phase, state.location) == (ID, Phase.COMPLETED, "archive")
    assert (state.manifest_hash, state.counters, state.bytes) == (sealed.manifest_hash, sealed.counters, sealed.bytes)
    assert sealed.archived
    assert max(steps) == (sealed.bytes, sealed.bytes, f"copying {ID} into the archive")
    steps.clear()
    archive.copy(ID)
    assert not steps  # it is there
    assert store.latest() == ID


def test_recovery_with_an_empty_store(place: Place, tmp_path: Path) -> None:
    root = tmp_path / "c"
    _, archive = archived(place, root)
    before, expected = data_of(f"{root}/saves/a0001/iter_0000040"), look_at(root).expected(ID)
    fresh = lose(root)
    assert isinstance(fresh.scan(), Unreadable)
    archive = place.open(fresh)
    assert only(archive).phase is Phase.COMPLETED
    archive.restore(ID)
    (state,) = fresh.scan()
    assert (state.phase, state.location, state.archived) == (Phase.COMPLETED, "store", True)
    assert fresh.latest() == ID
    assert fresh.expected(ID) == expected
    view = fresh.make_view(2, ID)
    assert data_of(f"{view}/iter_0000040") == before
    assert fresh.view_targets() == {2: ID}
    archive.restore(ID)  # it is there
    assert os.listdir(root / "restored") == [f"{ID}.1"]


def test_rot_in_the_archive_is_seen_and_can_be_healed(place: Place, tmp_path: Path) -> None:
    root = tmp_path / "c"
    store, _ = archived(place, root)
    place.change(SHARD, flipped)
    empty = PosixStore(str(tmp_path / "empty"), WORLD, Now())
    with pytest.raises(NotRestorable, match="is damaged: what was to become __1_0") as refused:
        place.open(empty).restore(ID)
    assert not refused.value.not_yet
    assert empty.scan() == ()
    state = only(place.open(store))
    assert state.phase is Phase.BROKEN
    assert "__1_0.distcp is not what its manifest says" in state.reasons[0]
    with pytest.raises(NotRestorable, match="is broken"):
        place.open(empty).restore(ID)
    place.open(store).copy(ID)  # the store has it still
    assert only(place.open(store)).phase is Phase.COMPLETED
    place.open(empty).restore(ID)
    assert data_of(empty.place(ID).data) == data_of(store.place(ID).data)


FAULTS: dict[str, tuple[Callable[[Place], None], str]] = {
    "a missing object": (lambda p: p.change(SHARD, None), "'__1_0.distcp' is missing in the archive"),
    "a truncated file": (lambda p: p.change(SHARD, lambda data: data[:-7]), "'__1_0.distcp' has "),
    "an empty file": (lambda p: p.change(".metadata", lambda _: b""), "'.metadata' has 0 of"),
    "another manifest": (
        lambda p: p.change_document(f"manifests/{ID}", pack(b'{"schema":1}', fresh_nonce())),
        "is not the manifest that copied",
    ),
    "a rotten manifest": (lambda p: p.change_document(f"manifests/{ID}", b"relight 1"), "does not begin as a document"),
    "a missing manifest": (lambda p: p.change_document(f"manifests/{ID}", None), f"manifests/{ID} is missing"),
    "a mark that is none": (
        lambda p: p.change_document(f"copied/{ID}", pack(b'{"schema":2}', fresh_nonce())),
        "is not a record of an archive",
    ),
    "a mark of another save": (
        lambda p: p.change_document(
            f"copied/{ID}",
            pack(
                b'{"schema":1,"id":"a0009-i0000040","manifest_sha256":"%s","bytes":1,"verified_at":1.0}' % (b"0" * 64),
                fresh_nonce(),
            ),
        ),
        "is of another save",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_seen_and_healed_while_the_store_has_the_save(place: Place, fault: str, tmp_path: Path) -> None:
    store, archive = archived(place, tmp_path / "c")
    spoil, reason = FAULTS[fault]
    spoil(place)
    state = only(place.open(store))
    assert state.phase is Phase.BROKEN
    assert reason in state.reasons[0]
    empty = PosixStore(str(tmp_path / "empty"), WORLD, Now())
    with pytest.raises(NotRestorable) as refused:
        place.open(empty).restore(ID)
    assert not refused.value.not_yet
    assert not os.path.exists(tmp_path / "empty/restored")
    archive.copy(ID)
    assert only(place.open(store)).phase is Phase.COMPLETED
    place.open(empty).restore(ID)
    assert data_of(empty.place(ID).data) == data_of(store.place(ID).data)


def test_an_archive_that_vanishes_is_never_empty(place: Place, tmp_path: Path) -> None:
    store, archive = archived(place, tmp_path / "c")
    place.vanish()
    for one in (archive, place.open(store)):
        assert isinstance(one.scan(), Unreadable)
        with pytest.raises(OSError, match="no store here now"):
            one.copy(ID)
        with pytest.raises(OSError, match="no store here now"):
            one.restore(ID)
        with pytest.raises(OSError, match="no store here now"):
            one.retain(1, ())
        with pytest.raises(OSError, match="no store here now"):
            one.keep_record(str(tmp_path))


def test_only_completed_saves_are_copied_and_rot_is_not(place: Place, tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = sealed_store(root, OLDER)
    write_save(store)
    archive = place.open(store)
    archive.make()
    with pytest.raises(NotRestorable, match="framework-done") as refused:
        archive.copy(ID)
    assert refused.value.not_yet
    with pytest.raises(NotRestorable) as refused:
        archive.copy("a0007-i0000001")
    assert archive.scan() == ()
    store.seal(ID)
    path = root / "saves/a0001/iter_0000040" / SHARD
    path.write_bytes(flipped(path.read_bytes()))
    with pytest.raises(NotRestorable, match="is not what its manifest says") as refused:
        archive.copy(ID)
    assert not refused.value.not_yet
    assert only(archive).phase is Phase.IN_PROGRESS
    assert SHARD not in place.files(ID)
    assert not store.state(ID).archived
    with pytest.raises(NotRestorable, match="in-progress") as refused:
        place.open(PosixStore(str(tmp_path / "empty"), WORLD, Now())).restore(ID)
    assert refused.value.not_yet


def test_two_saves_of_one_name_are_not_mixed(place: Place, tmp_path: Path) -> None:
    archived(place, tmp_path / "c")
    other = sealed_store(tmp_path / "other", ID, sidecars=False)
    assert other.state(ID).phase is Phase.COMPLETED
    with pytest.raises(NotRestorable, match="holds another save by the name"):
        place.open(other).copy(ID)
    with pytest.raises(NotRestorable, match="holds another save by the name"):
        place.open(other).restore(ID)
    assert not other.state(ID).archived


def test_the_oldest_copies_go_and_never_the_last(place: Place, tmp_path: Path) -> None:
    ids = [f"a0001-i{step:07d}" for step in (10, 20, 30, 40)]
    store = sealed_store(tmp_path / "c", *ids)
    archive = place.open(store)
    archive.make()
    for one in ids:
        archive.copy(one)
    with pytest.raises(ValueError, match="never deleted"):
        archive.retain(0, ())
    assert archive.retain(2, {ids[0]}) == (ids[1],)
    assert [s.id for s in archive.scan()] == [ids[0], *ids[2:]]
    assert archive.retain(1, ()) == (ids[0], ids[2])
    assert archive.retain(1, ()) == ()
    assert [s.id for s in place.open(store).scan()] == [ids[3]]
    assert [s.id for s in store.scan() if s.archived] == [ids[3]]
    assert [place.files(one) for one in ids[:3]] == [[], [], []]
    assert place.files(ids[3])
    with pytest.raises(NotRestorable, match="was deleted from the archive"):
        archive.copy(ids[0])
    with pytest.raises(NotRestorable, match="no copy of"):
        archive.restore(ids[0])


def test_a_broken_copy_is_not_counted(place: Place, tmp_path: Path) -> None:
    store = sealed_store(tmp_path / "c", OLDER, ID)
    archive = place.open(store)
    archive.make()
    archive.copy(OLDER)
    archive.copy(ID)
    place.change(SHARD, None)
    assert place.open(store).retain(1, ()) == ()
    assert {s.id: s.phase for s in place.open(store).scan()} == {OLDER: Phase.COMPLETED, ID: Phase.BROKEN}


def test_the_record_comes_back(place: Place, tmp_path: Path) -> None:
    run = tmp_path / "run"
    store = sealed_store(run / "checkpoints", ID)
    (run / "journal").mkdir()
    (run / "incidents/0001/evidence").mkdir(parents=True)
    (run / "settings.json").write_text("{}")
    journal = run / "journal/000001.jsonl"
    journal.write_bytes(os.urandom(9 << 20))
    (run / "incidents/0001/evidence/log").write_text("CUDA error")
    (run / "incidents/0001/link").symlink_to("/etc/passwd")
    (run / "token").write_text("secret")
    archive = place.open(store)
    archive.make()
    with pytest.raises(UserError, match="no record"):
        place.recover(tmp_path / "back")
    first = archive.keep_record(str(run))
    assert first > 9 << 20
    assert archive.keep_record(str(run)) == 0
    with journal.open("ab") as file:
        file.write(b"one more line\n")
    assert archive.keep_record(str(run)) == (1 << 20) + len(b"one more line\n")  # the last piece of 4 MiB, and no other
    names = place.recover(tmp_path / "back")
    assert set(names) == {
        "settings.json",
        "journal/000001.jsonl",
        "incidents/0001/evidence/log",
        *(f"manifests/{ID}/{mark}" for mark in ("manifest.json", "OUTCOME", "COMMITTED")),
    }
    for name in names:
        before = run / name.replace("manifests/", "checkpoints/seals/")
        assert (tmp_path / "back" / name).read_bytes() == before.read_bytes()
    with pytest.raises(UserError, match="already has"):
        place.recover(tmp_path / "back")
    place.change_document(f"record/objects/{xxhash.xxh3_128_hexdigest(journal.read_bytes()[: 4 << 20])}", None)
    with pytest.raises(OSError, match="missing in the archive"):
        place.recover(tmp_path / "again")
