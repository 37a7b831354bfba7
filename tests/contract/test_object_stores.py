"""One contract over every store: POSIX files, S3 (moto's server on loopback), and obstore's own memory."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("obstore", reason="pip install 'relight[objects]'")

import obstore
from obstore.store import LocalStore, MemoryStore

from supervisor.bench import store_trials as trials
from supervisor.bench.careless import CheckThenWrite, InPlace, PlainFiles
from supervisor.bench.s3_server import Server, has_moto, s3_server
from supervisor.bench.store_latency import commit_latency
from supervisor.checkpoints.objects.opening import bucket, open_objects
from supervisor.checkpoints.objects.port import (
    LIMIT,
    Broken,
    Conflict,
    Deleted,
    Found,
    Made,
    Missing,
    NotYet,
    Objects,
    Version,
    Written,
)
from supervisor.checkpoints.objects.posix import PosixObjects
from supervisor.checkpoints.objects.remote import RemoteObjects
from supervisor.errors import UserError

W = 60.0
KEY = "seals/a0003-i0000040/COMMITTED"
KINDS = [
    "posix",
    "memory",
    pytest.param("s3", marks=pytest.mark.skipif(not has_moto(), reason="needs moto[s3], flask, flask-cors")),
]
pytestmark = pytest.mark.xdist_group("object-stores")  # one server for all of them


@dataclass
class Place:
    """One kind of store: how to open it, how to write under its hands, how to take it away."""

    open: Callable[[], Objects]
    raw: Callable[[str], bytes]
    damage: Callable[[str, bytes], None]
    vanish: Callable[[], None]

    def made(self) -> Objects:
        store = self.open()
        assert store.make(within_s=W) == Made()
        return store


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "posix":
        return posix_place(tmp_path / "store")
    if request.param == "memory":
        memory = MemoryStore()
        return remote_place(lambda: RemoteObjects(memory), memory)
    running = request.getfixturevalue("server")
    url = running.url(uuid4().hex)
    return remote_place(partial(open_objects, url, running.config), bucket(url, running.config))


def posix_place(root: Path) -> Place:
    def newest(key: str) -> Path:
        return max((root / key).glob("@*"))

    return Place(
        open=partial(PosixObjects, str(root), lag_s=0.0),
        raw=lambda key: newest(key).read_bytes(),
        damage=lambda key, data: newest(key).write_bytes(data) and None,
        vanish=lambda: shutil.rmtree(root),
    )


def remote_place(opener: Callable[[], Objects], below: obstore.store.ObjectStore) -> Place:
    def vanish() -> None:
        for batch in obstore.list(below):
            obstore.delete(below, [each["path"] for each in batch])

    return Place(
        open=opener,
        raw=lambda key: bytes(obstore.get(below, key).bytes()),
        damage=lambda key, data: obstore.put(below, key, data) and None,
        vanish=vanish,
    )


def version_of(store: Objects, key: str = KEY) -> Version:
    there = store.get(key, within_s=W)
    assert isinstance(there, Found)
    return there.version


# --- one writer -------------------------------------------------------------------------------------------------------


def test_what_is_put_is_found_by_all_who_open_the_store(place: Place) -> None:
    store = place.made()
    assert store.get(KEY, within_s=W) == Missing()
    done = store.put_if_absent(KEY, b"manifest of 40", within_s=W)
    assert isinstance(done, Written)
    assert store.get(KEY, within_s=W) == place.open().get(KEY, within_s=W) == Found(b"manifest of 40", done.version)


def test_what_is_there_is_not_replaced_by_one_who_thinks_it_absent(place: Place) -> None:
    store = place.made()
    done = store.put_if_absent(KEY, b"first", within_s=W)
    assert isinstance(done, Written)
    assert place.open().put_if_absent(KEY, b"second", within_s=W) == Conflict()
    assert store.get(KEY, within_s=W) == Found(b"first", done.version)


def test_only_the_version_that_was_read_is_replaced(place: Place) -> None:
    store = place.made()
    store.put_if_absent(KEY, b"1", within_s=W)
    old = version_of(store)
    done = store.put_if_version(KEY, b"2", old, within_s=W)
    assert isinstance(done, Written)
    assert done.version != old
    assert place.open().put_if_version(KEY, b"3", old, within_s=W) == Conflict()
    assert store.get(KEY, within_s=W) == Found(b"2", done.version)


def test_an_old_version_stays_old_when_its_content_comes_back(place: Place) -> None:
    store = place.made()
    store.put_if_absent(KEY, b"A", within_s=W)
    first = version_of(store)
    for data in (b"B", b"A"):
        assert isinstance(store.put_if_version(KEY, data, version_of(store), within_s=W), Written)
    assert store.put_if_version(KEY, b"C", first, within_s=W) == Conflict()


@pytest.mark.parametrize("version", ["", "1-0123456789abcdef", '["\\"0\\"", null]', "[]", "{", "null"])
def test_a_version_that_was_never_given_out_replaces_nothing(place: Place, version: str) -> None:
    store = place.made()
    assert store.put_if_version(KEY, b"x", Version(version), within_s=W) == Conflict()
    store.put_if_absent(KEY, b"1", within_s=W)
    assert store.put_if_version(KEY, b"x", Version(version), within_s=W) == Conflict()
    there = store.get(KEY, within_s=W)
    assert isinstance(there, Found)
    assert there.data == b"1"


def test_a_deleted_document_is_missing_and_its_versions_are_void(place: Place) -> None:
    store = place.made()
    assert store.delete(KEY, within_s=W) == Deleted()
    store.put_if_absent(KEY, b"1", within_s=W)
    old = version_of(store)
    assert store.delete(KEY, within_s=W) == Deleted()
    assert store.delete(KEY, within_s=W) == Deleted()
    assert place.open().get(KEY, within_s=W) == Missing()
    assert store.put_if_version(KEY, b"2", old, within_s=W) == Conflict()
    assert isinstance(store.put_if_absent(KEY, b"1", within_s=W), Written)
    assert store.put_if_version(KEY, b"2", old, within_s=W) == Conflict()
    there = store.get(KEY, within_s=W)
    assert isinstance(there, Found)
    assert there.data == b"1"


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\x00\xff" * 7, b"relight 1 gone 0 " + b"0" * 32, b"m" * 3_000_000],
    ids=["empty", "line", "bytes", "head", "3MB"],
)
def test_every_byte_comes_back(place: Place, data: bytes) -> None:
    store = place.made()
    assert isinstance(store.put_if_absent(KEY, data, within_s=W), Written)
    there = store.get(KEY, within_s=W)
    assert isinstance(there, Found)
    assert there.data == data


def test_keys_are_those_below_a_folder(place: Place) -> None:
    store = place.made()
    assert store.keys(within_s=W) == ()
    for key in ("a/b/c", "a/b", "a/bc", "a/b/d/e", "z", "a/gone"):
        assert isinstance(store.put_if_absent(key, b"x", within_s=W), Written)
    store.delete("a/gone", within_s=W)
    assert store.keys(within_s=W) == ("a/b", "a/b/c", "a/b/d/e", "a/bc", "z")
    assert store.keys("a", within_s=W) == ("a/b", "a/b/c", "a/b/d/e", "a/bc")
    assert store.keys("a/b", within_s=W) == ("a/b/c", "a/b/d/e")
    assert store.keys("nothing", within_s=W) == ()


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        ".relight-objects",
        "a/@0000001",
        "a b",
        "a\n",
        "x" * 101,
        "a/" * 17 + "a",
    ],
)
def test_a_text_that_is_no_key_is_refused(place: Place, key: str) -> None:
    store = place.open()
    for call in (
        lambda: store.get(key, within_s=W),
        lambda: store.put_if_absent(key, b"x", within_s=W),
        lambda: store.put_if_version(key, b"x", Version("1"), within_s=W),
        lambda: store.delete(key, within_s=W),
        *([lambda: store.keys(key, within_s=W)] if key else []),
    ):
        with pytest.raises(ValueError, match="is no key"):
            call()


def test_bulk_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="no small document"):
        place.open().put_if_absent(KEY, bytes(LIMIT + 1), within_s=W)


# --- what is not there, and what is not right ---------------------------------------------------------------------------


def test_a_store_that_was_never_made_or_is_gone_is_never_empty(place: Place) -> None:
    for _ in range(2):
        store = place.open()
        for answer in (
            store.get(KEY, within_s=W),
            store.keys(within_s=W),
            store.keys("seals", within_s=W),
        ):
            assert isinstance(answer, NotYet), answer
        made = place.made()
        made.put_if_absent(KEY, b"x", within_s=W)
        assert made.make(within_s=W) == Made()
        assert made.keys(within_s=W) == (KEY,)
        place.vanish()


@pytest.mark.skipif(not has_moto(), reason="needs moto[s3], flask, flask-cors")
def test_a_bucket_that_is_not_there_is_never_empty(server: Server) -> None:
    store = open_objects("s3://nobody-has-made-it", server.config)
    for answer in (
        store.make(within_s=W),
        store.get(KEY, within_s=W),
        store.put_if_absent(KEY, b"1", within_s=W),
        store.put_if_version(KEY, b"1", Version('["x", null]'), within_s=W),
        store.keys(within_s=W),
        store.delete(KEY, within_s=W),
    ):
        assert isinstance(answer, NotYet), answer


def flipped(raw: bytes) -> bytes:
    return raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:]


@pytest.mark.parametrize(
    "harm",
    [flipped, lambda raw: raw[:-1], lambda raw: raw[:20], lambda _: b"", lambda raw: raw + b"x", lambda _: b"{}"],
    ids=["flipped", "short", "head", "empty", "long", "foreign"],
)
def test_what_is_not_what_was_put_is_broken(place: Place, harm: Callable[[bytes], bytes]) -> None:
    store = place.made()
    store.put_if_absent(KEY, b"a good manifest", within_s=W)
    version = version_of(store)
    place.damage(KEY, harm(place.raw(KEY)))
    assert isinstance(store.get(KEY, within_s=W), Broken)
    assert KEY in store.keys(within_s=W)  # it is there, and `get` says what it is
    assert store.put_if_absent(KEY, b"another", within_s=W) == Conflict()
    assert store.put_if_version(KEY, b"another", version, within_s=W) == Conflict()
    assert store.delete(KEY, within_s=W) == Deleted()
    assert store.get(KEY, within_s=W) == Missing()


# --- many at once -----------------------------------------------------------------------------------------------------


def test_no_read_during_rewrites_is_torn(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        seen = trials.reads_during_rewrites(place.open, 2_000, 4, pool)
    assert seen.good, seen
    assert seen.reads >= 2_000


def test_a_store_that_rewrites_in_place_is_seen_to_be_torn(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        seen = trials.reads_during_rewrites(partial(InPlace, str(tmp_path)), 2_000, 4, pool)
    assert seen.torn > 0, seen
    assert not seen.good


@pytest.mark.parametrize("replace", [False, True], ids=["absent", "version"])
def test_of_sixteen_writers_one_wins(place: Place, replace: bool) -> None:
    for one in trials.race(place.open, 8, 16, replace=replace):
        assert one.good, one
        assert one.refused == 15


@pytest.mark.parametrize(("kind", "replace"), [(CheckThenWrite, False), (PlainFiles, True)], ids=["absent", "version"])
def test_a_store_that_looks_and_then_writes_has_several_winners(
    kind: type[PlainFiles], replace: bool, tmp_path: Path
) -> None:
    races = trials.race(partial(kind, str(tmp_path)), 8, 16, replace=replace)
    assert any(len(one.winners) > 1 for one in races), races


def test_no_count_is_lost(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert trials.count_up(place.open, 4, 10, pool) == (40, 40)


def test_a_store_that_looks_and_then_replaces_loses_counts(tmp_path: Path) -> None:
    # Whether two meet between look and replace is for the machine to say; of 20 rounds, some do.
    def loses(number: int) -> bool:
        folder = tmp_path / str(number)
        folder.mkdir()
        added, there = trials.count_up(partial(PlainFiles, str(folder)), 4, 25, pool)
        assert added == 100
        return there < added

    with ThreadPoolExecutor(4) as pool:
        assert any(loses(number) for number in range(20))


def test_a_killed_writer_leaves_no_half(tmp_path: Path) -> None:
    good, last = trials.kill_writers(partial(PosixObjects, str(tmp_path), lag_s=0.0), 3, random.Random(1))
    assert good == 3
    assert last > 3


def test_a_killed_writer_that_rewrites_in_place_is_found_out(tmp_path: Path) -> None:
    # A kill may come between two rewrites; of 40, some come into one.
    store = partial(InPlace, str(tmp_path))
    assert any(trials.kill_writers(store, 4, random.Random(seed))[0] < 4 for seed in range(10))


@pytest.mark.parametrize("open_", [PosixObjects, PlainFiles])
def test_the_latency_of_a_commit_is_that_of_documents_that_were_taken(open_: type[PlainFiles], tmp_path: Path) -> None:
    found = commit_latency(partial(open_, str(tmp_path)), 3)
    assert 0 < found.median_ms <= found.p95_ms
    store = PosixObjects(str(tmp_path), lag_s=0.0)
    if open_ is PosixObjects:
        assert store.keys("seals/a0001-i0000002", within_s=W) == (
            "seals/a0001-i0000002/COMMITTED",
            "seals/a0001-i0000002/manifest",
        )
        with pytest.raises(UserError, match="did not take"):
            commit_latency(partial(PosixObjects, str(tmp_path), lag_s=0.0), 3)


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_store_that_cannot_replace_by_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="conditions on writes"):
        RemoteObjects(LocalStore(tmp_path)).make(within_s=W)


def test_an_unknown_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="s3://"):
        open_objects("ftp://host/place")
    with pytest.raises(UserError, match="s3://relight"):
        open_objects("s3://relight/x", {"no_such_setting": "1"})
    assert open_objects(str(tmp_path / "x"), lag_s=0).make(within_s=W) == Made()
