"""Documents on a file system that lags as NFS does: old lists of names, short files, and a clock of our own.

Nodes whose caches are behind may be told "not yet" or see what was true within the bound; they never win what is not
theirs, never see half a document, and never call broken or missing what is only late.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.checkpoints.objects.files import Files
from supervisor.checkpoints.objects.patience import Patience
from supervisor.checkpoints.objects.port import (
    Broken,
    Conflict,
    Deleted,
    Found,
    Made,
    Missing,
    NotYet,
    Version,
    Written,
)
from supervisor.checkpoints.objects.posix import PosixObjects

BOUND = 60.0
W = 60.0
KEY = "run/latest"
PATIENCE = Patience()
"""One for all stores here: thousands are opened."""


@dataclass
class Disk:
    """What the server has: files with the time at which they were linked, and folders."""

    now: float = 0.0
    files: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)


class Fresh(Files):
    """A node that asks the server each time."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def names(self, folder: str) -> list[str]:
        if folder not in self.disk.folders:
            raise FileNotFoundError(2, "No such file or directory", folder)
        return [os.path.basename(path) for path in self.disk.files if os.path.dirname(path) == folder]

    def folders(self, folder: str) -> list[str]:
        self.names(folder)
        return [os.path.basename(path) for path in self.disk.folders if os.path.dirname(path) == folder]

    def read(self, path: str, limit: int) -> bytes:  # noqa: ARG002 - as the real one
        if path not in self.disk.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.disk.files[path][0]

    def head(self, path: str, size: int) -> bytes:
        return self.read(path, size)[:size]

    def create(self, path: str, data: bytes) -> bool:
        if path in self.disk.files:
            return False
        self.disk.files[path] = (data, self.disk.now)
        return True

    def make_root(self, path: str) -> None:
        self.disk.folders.add(path)

    def make_folder(self, path: str) -> None:
        self.disk.folders.add(path)

    def changed_ns(self, path: str) -> int:
        return int(self.disk.files[path][1] * 1e9)

    def remove(self, path: str) -> None:
        if self.disk.files.pop(path, None) is None:
            raise FileNotFoundError(2, "No such file or directory", path)


class Behind(Fresh):
    """A node that shows lists up to the bound old, and files of others short while they are young."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.lists: dict[str, tuple[float, list[str] | None]] = {}
        self.short = False
        self.own: set[str] = set()

    def refresh(self) -> None:
        self.lists.clear()

    def names(self, folder: str) -> list[str]:
        at, shown = self.lists.get(folder, (-BOUND, None))
        if self.disk.now - at >= BOUND:
            shown = super().names(folder) if folder in self.disk.folders else None
            self.lists[folder] = (self.disk.now, shown)
        if shown is None:
            raise FileNotFoundError(2, "No such file or directory", folder)
        return shown

    def read(self, path: str, limit: int) -> bytes:
        data = super().read(path, limit)
        young = self.disk.now - self.disk.files[path][1] < BOUND
        return data[: len(data) // 2] if self.short and young and path not in self.own and "/@" in path else data

    def create(self, path: str, data: bytes) -> bool:
        made = super().create(path, data)
        self.own |= {path} if made else set()
        return made


class Node:
    def __init__(self, disk: Disk, files: Fresh, lag_s: float = BOUND) -> None:
        self.files = files
        self.store = PosixObjects("/store", lag_s=lag_s, clock=lambda: disk.now, files=files, patience=PATIENCE)
        assert self.store.make(within_s=W) == Made()
        self.version: Version | None = None
        self.newest = 0


@dataclass
class Model:
    """What really happened, in order: the time, and the document from then on (None: none)."""

    disk: Disk
    history: list[tuple[float, bytes | None]]
    versions: dict[bytes | None, Version] = field(default_factory=dict)

    @property
    def current(self) -> bytes | None:
        return self.history[-1][1]

    def now_is(self, data: bytes | None) -> None:
        self.history.append((self.disk.now, data))

    def lately(self) -> set[bytes | None]:
        """All that was true at some time within the bound."""
        ends = [at for at, _ in self.history[1:]] + [self.disk.now]
        return {data for (_, data), end in zip(self.history, ends, strict=True) if self.disk.now - end <= BOUND}


OPS = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["get", "absent", "version", "version", "version", "delete"]),
    st.sampled_from([0.0, 0.0, 5.0, 31.0, 61.0]),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPS, max_size=40))
def test_nodes_that_are_behind_never_win_what_is_not_theirs(ops: list[tuple[int, str, float, bool, bool]]) -> None:
    play(ops, BOUND)


def test_the_play_sees_a_store_that_does_not_wait() -> None:
    @settings(max_examples=300, deadline=None, database=None, phases=[Phase.generate], derandomize=True)
    @given(st.lists(OPS, max_size=40))
    def without_a_bound(ops: list[tuple[int, str, float, bool, bool]]) -> None:
        play(ops, 0.0)

    with pytest.raises((AssertionError, ExceptionGroup)):
        without_a_bound()


def play(ops: list[tuple[int, str, float, bool, bool]], lag_s: float) -> None:
    disk = Disk()
    nodes = [Node(disk, Fresh(disk), lag_s), Node(disk, Behind(disk), lag_s), Node(disk, Behind(disk), lag_s)]
    model = Model(disk, [(-BOUND, None)])
    for number, (which, op, later, refresh, short) in enumerate(ops):
        disk.now += later
        node = nodes[which]
        if isinstance(node.files, Behind):
            node.files.short = short
            if refresh:
                node.files.refresh()
        step(nodes[0], node, model, op, b"%d " % number + b"x" * number)


def step(fresh: Node, node: Node, model: Model, op: str, data: bytes) -> None:
    before = model.current
    if op == "get":
        seen = node.store.get(KEY, within_s=W)
        check_seen(fresh, node, model, seen)
        return
    if op == "delete":
        done: object = node.store.delete(KEY, within_s=W)
        if isinstance(done, Deleted):
            if true_now(model) is None and before is not None:
                model.now_is(None)
            assert None in model.lately()
            return
        wanted: bytes | None = None
    else:
        wanted = data
        if op == "absent":
            done = node.store.put_if_absent(KEY, data, within_s=W)
        else:
            done = node.store.put_if_version(KEY, data, node.version or Version("1-0"), within_s=W)
        if isinstance(done, Written):
            if op == "absent":
                assert before is None, "put_if_absent won over what is there"
            else:
                assert node.version == model.versions.get(before), "put_if_version won over another version"
            node.version = done.version
            node.newest = max(node.newest, int(done.version.split("-", maxsplit=1)[0]))
            model.versions[data] = done.version
            model.now_is(data)
            assert true_now(model) == data
            return
    if isinstance(done, NotYet) and true_now(model) == wanted != before:
        model.now_is(wanted)  # it landed, and could not be seen to
        note_version(model, wanted)
    assert true_now(model) == model.current, done


def note_version(model: Model, data: bytes | None) -> None:
    if data is not None:
        there = PosixObjects("/store", lag_s=0.0, files=Fresh(model.disk), patience=PATIENCE).get(KEY, within_s=W)
        assert isinstance(there, Found)
        model.versions[data] = there.version


def true_now(model: Model) -> bytes | None:
    """What the server has, read by one who is never behind."""
    there = PosixObjects("/store", lag_s=0.0, files=Fresh(model.disk), patience=PATIENCE).get(KEY, within_s=W)
    assert isinstance(there, Found | Missing), there
    return there.data if isinstance(there, Found) else None


def check_seen(fresh: Node, node: Node, model: Model, seen: object) -> None:
    assert not isinstance(seen, Broken), seen
    if isinstance(seen, Missing):
        assert None in model.lately()
    if isinstance(seen, Found):
        assert seen.data in model.lately()
        number = int(seen.version.split("-", maxsplit=1)[0])
        assert number >= node.newest, "an older document after a newer"
        node.newest, node.version = number, seen.version
    if node is fresh and model.current is not None:
        assert isinstance(seen, Found)
        assert seen.data == model.current


def test_absent_is_not_yet_until_the_bound_has_passed() -> None:
    disk = Disk()
    node = Node(disk, Behind(disk))
    for now in (0.0, 30.0, 59.9):
        disk.now = now
        assert isinstance(node.store.get(KEY, within_s=W), NotYet)
        assert isinstance(node.store.keys("run", within_s=W), NotYet)
        assert isinstance(node.store.delete(KEY, within_s=W), NotYet)
    disk.now = 60.0
    assert node.store.get(KEY, within_s=W) == Missing()
    assert node.store.keys("run", within_s=W) == ()


def test_what_comes_late_is_found() -> None:
    disk = Disk()
    node, writer = Node(disk, Behind(disk)), Node(disk, Fresh(disk))
    assert isinstance(node.store.get(KEY, within_s=W), NotYet)
    done = writer.store.put_if_absent(KEY, b"late", within_s=W)
    assert isinstance(done, Written)
    disk.now = 59.0
    assert isinstance(node.store.get(KEY, within_s=W), NotYet)  # its list is old
    assert node.store.put_if_absent(KEY, b"mine", within_s=W) == Conflict()  # the server knows
    disk.now = 60.0
    assert node.store.get(KEY, within_s=W) == Found(b"late", done.version)


def test_short_is_not_yet_until_the_bound_has_passed_and_then_broken() -> None:
    disk = Disk()
    node, writer = Node(disk, Behind(disk)), Node(disk, Fresh(disk))
    assert isinstance(writer.store.put_if_absent(KEY, b"a document", within_s=W), Written)
    path = next(path for path in disk.files if "/@" in path)
    whole, at = disk.files[path]
    disk.files[path] = (whole[:-3], at)
    for now in (0.0, 59.0):
        disk.now = now
        assert isinstance(node.store.get(KEY, within_s=W), NotYet)
    disk.now = 60.0
    assert isinstance(node.store.get(KEY, within_s=W), Broken)
    disk.files[path] = (whole, at)
    assert isinstance(node.store.get(KEY, within_s=W), Found)
    disk.files[path] = (whole[:-3], at)
    assert isinstance(node.store.get(KEY, within_s=W), NotYet)  # its wait begins anew


def test_nobody_sees_an_older_document_after_a_newer() -> None:
    disk = Disk()
    node = Node(disk, Behind(disk))
    done = node.store.put_if_absent(KEY, b"1", within_s=W)  # its list of names is from before, and stays so
    assert isinstance(done, Written)
    assert isinstance(node.store.get(KEY, within_s=W), NotYet)
    disk.now = 61.0
    assert node.store.get(KEY, within_s=W) == Found(b"1", done.version)
    second = node.store.put_if_version(KEY, b"2", done.version, within_s=W)
    assert isinstance(second, Written)
    assert isinstance(node.store.get(KEY, within_s=W), NotYet)
    disk.now = 122.0
    assert node.store.get(KEY, within_s=W) == Found(b"2", second.version)


class Cured(Behind):
    """As NFS does: a node that has changed a folder reads its names again. What it has read it does not ask for again."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.pages: dict[str, bytes] = {}

    def read(self, path: str, limit: int) -> bytes:
        if path not in self.pages:
            self.pages[path] = super().read(path, limit)
        return self.pages[path]

    def create(self, path: str, data: bytes) -> bool:
        self.refresh()
        return super().create(path, data)


def rewritten_often(node: Node, lag_s: float) -> tuple[Version, Version]:
    """`node` reads the first of 31 versions and keeps its list and file; the first version and the last."""
    disk = node.files.disk
    writer = Node(disk, Fresh(disk), lag_s)
    done = writer.store.put_if_absent(KEY, b"0", within_s=W)
    assert isinstance(done, Written)
    assert node.store.get(KEY, within_s=W) == Found(b"0", done.version)
    first, kept = done.version, disk.files["/store/run/latest/@0000001"]
    for number in range(30):
        disk.now += 1
        done = writer.store.put_if_version(KEY, b"%d" % number, done.version, within_s=W)
        assert isinstance(done, Written)
    if lag_s == 0.0:
        assert "/store/run/latest/@0000002" not in disk.files
        disk.files["/store/run/latest/@0000001"] = kept  # the node's cache still has it
    return first, done.version


@pytest.mark.parametrize("lag_s", [BOUND, 0.0], ids=["bound", "planted: no bound"])
def test_a_number_becomes_free_only_when_nobody_can_still_think_it_is(lag_s: float) -> None:
    """Without the bound, removing old files frees a number that a node with an old list then takes: it "wins"."""
    disk = Disk()
    node = Node(disk, Behind(disk), lag_s)
    first, last = rewritten_often(node, lag_s)
    said = node.store.put_if_version(KEY, b"mine", first, within_s=W)
    assert said == Conflict() if lag_s else isinstance(said, Written)
    there = Node(disk, Fresh(disk)).store.get(KEY, within_s=W)
    assert there == Found(b"29", last)


def test_who_has_taken_a_number_among_removed_ones_sees_it_and_takes_it_back() -> None:
    disk = Disk()
    node = Node(disk, Cured(disk), 0.0)
    first, _ = rewritten_often(node, 0.0)
    disk.files.pop("/store/run/latest/@0000001")
    assert isinstance(node.store.put_if_version(KEY, b"mine", first, within_s=W), NotYet)
    assert "/store/run/latest/@0000002" not in disk.files
