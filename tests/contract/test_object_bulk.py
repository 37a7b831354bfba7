"""Copies of bulk into an archive and back: believed only when what has landed was read again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import xxhash

pytest.importorskip("obstore", reason="pip install 'relight[objects]'")

import obstore
from obstore.store import MemoryStore

from supervisor.bench.s3_server import Server, has_moto, s3_server
from supervisor.checkpoints.objects.bulk import FOLDER, Bulk, Copied, Differs, PosixBulk
from supervisor.checkpoints.objects.bulk_remote import RemoteBulk
from supervisor.checkpoints.objects.opening import bucket
from supervisor.checkpoints.objects.port import MARKER, Missing, NotYet
from supervisor.checkpoints.objects.posix import PosixObjects
from supervisor.checkpoints.objects.remote import RemoteObjects

W = 60.0
KEY = "a0003-i0000040/.metadata"
pytestmark = pytest.mark.xdist_group("object-stores")


@dataclass
class Place:
    bulk: Bulk
    names: Callable[[], list[str]]
    rot: Callable[[], None]
    vanish: Callable[[], None]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(
    params=[
        "posix",
        "memory",
        pytest.param("s3", marks=pytest.mark.skipif(not has_moto(), reason="needs moto[s3], flask, flask-cors")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "posix":
        root = tmp_path / "store"
        PosixObjects(str(root)).make(within_s=W)

        def rot() -> None:
            path = root / FOLDER / KEY
            path.write_bytes(flipped(path.read_bytes()))

        return Place(
            bulk=PosixBulk(str(root)),
            names=lambda: [path.name for path in (root / FOLDER).rglob("*") if path.is_file()],
            rot=rot,
            vanish=lambda: shutil.rmtree(root),
        )
    if request.param == "memory":
        store: obstore.store.ObjectStore = MemoryStore()
    else:
        running = request.getfixturevalue("server")
        store = bucket(running.url(uuid4().hex), running.config)
    RemoteObjects(store).make(within_s=W)

    def remote_rot() -> None:
        obstore.put(store, f"{FOLDER}/{KEY}", flipped(bytes(obstore.get(store, f"{FOLDER}/{KEY}").bytes())))

    return Place(
        bulk=RemoteBulk(store, chunk=6 << 20),
        names=lambda: [each["path"].rpartition("/")[2] for batch in obstore.list(store, FOLDER) for each in batch],
        rot=remote_rot,
        vanish=lambda: obstore.delete(store, [f"{FOLDER}/{KEY}", MARKER]),
    )


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def shard(folder: Path, size: int) -> tuple[str, str]:
    """A file of random bytes, and its sum."""
    path, data = folder / "__0_0.distcp", os.urandom(size)
    path.write_bytes(data)
    return str(path), xxhash.xxh3_128(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 8 << 20, (20 << 20) + 7], ids=["empty", "byte", "8MiB", "parts"])
def test_a_copy_comes_back_as_it_was(place: Place, size: int, tmp_path: Path) -> None:
    source, total = shard(tmp_path, size)
    for _ in range(2):  # the second finds it, and verifies it
        assert place.bulk.copy_in(source, KEY, total, within_s=W) == Copied(size)
    target = tmp_path / "back"
    for _ in range(2):
        assert place.bulk.copy_out(KEY, str(target), total, within_s=W) == Copied(size)
    assert target.read_bytes() == Path(source).read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted(
        {"__0_0.distcp", "back", *(["store"] if (tmp_path / "store").exists() else [])}
    )


@pytest.mark.parametrize("size", [100, 20 << 20], ids=["small", "parts"])
def test_rot_is_not_archived(place: Place, size: int, tmp_path: Path) -> None:
    source, total = shard(tmp_path, size)
    Path(source).write_bytes(flipped(Path(source).read_bytes()))
    said = place.bulk.copy_in(source, KEY, total, within_s=W)
    assert isinstance(said, Differs), said
    assert place.names() == []


def test_rot_in_the_archive_is_seen_on_every_way(place: Place, tmp_path: Path) -> None:
    source, total = shard(tmp_path, 9 << 20)
    place.bulk.copy_in(source, KEY, total, within_s=W)
    place.rot()
    assert isinstance(place.bulk.copy_in(source, KEY, total, within_s=W), Differs)
    assert isinstance(place.bulk.copy_out(KEY, str(tmp_path / "back"), total, within_s=W), Differs)
    assert not (tmp_path / "back").exists()


def test_what_is_there_already_is_not_replaced(place: Place, tmp_path: Path) -> None:
    source, total = shard(tmp_path, 1_000)
    place.bulk.copy_in(source, KEY, total, within_s=W)
    (tmp_path / "back").write_bytes(b"somebody's")
    assert isinstance(place.bulk.copy_out(KEY, str(tmp_path / "back"), total, within_s=W), Differs)
    assert (tmp_path / "back").read_bytes() == b"somebody's"


def test_absent_is_missing_and_a_store_that_is_gone_is_not_yet(place: Place, tmp_path: Path) -> None:
    source, total = shard(tmp_path, 1_000)
    assert place.bulk.copy_out(KEY, str(tmp_path / "back"), total, within_s=W) == Missing()
    assert isinstance(place.bulk.copy_in(str(tmp_path / "nothing"), KEY, total, within_s=W), NotYet)
    place.bulk.copy_in(source, KEY, total, within_s=W)
    place.vanish()
    assert isinstance(place.bulk.copy_out(KEY, str(tmp_path / "back"), total, within_s=W), NotYet)


def test_a_copy_that_is_late_leaves_nothing(place: Place, tmp_path: Path) -> None:
    source, total = shard(tmp_path, 1_000)
    assert isinstance(place.bulk.copy_in(source, KEY, total, within_s=0.0), NotYet)
    assert place.names() == []


@pytest.mark.parametrize("key", ["../x", "/x", "", "a/./b", "a/..", "a//b", "a.tmp", "a\n"])
def test_a_text_that_is_no_key_is_refused(place: Place, key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no key"):
        place.bulk.copy_in("x", key, "0" * 32, within_s=W)
    with pytest.raises(ValueError, match="is no key"):
        place.bulk.copy_out(key, str(tmp_path / "x"), "0" * 32, within_s=W)
