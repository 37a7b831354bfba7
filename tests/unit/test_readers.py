"""Reading by many nodes: what each says is a claim, and none of them can make a good save bad or a bad one good."""

from __future__ import annotations

import functools
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.bench.checkpoint_reading import make_content
from supervisor.checkpoints.readers import Readers
from supervisor.checkpoints.reading.by_threads import ByThreads
from supervisor.checkpoints.reading.content import ContentReader, Job
from supervisor.checkpoints.reading.findings import Weight
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import limits_for, read_structure
from supervisor.checkpoints.reading.throttle import CancelledError, Pace, Throttle
from supervisor.observe.reads import Reads

FILES = 12


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    make_content(str(folder), FILES, 40_000)
    return folder


@pytest.fixture
def save(good, tmp_path):
    for path in good.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@functools.cache
def described(root):
    return read_structure(root, limits_for(1 << 20))


class Node:
    """A node that reads as it should; subclasses lie, die, or are slow."""

    def __init__(self):
        self.asked = []
        self.stopped = 0

    def answer(self, crew, name, message):
        for file in message["files"]:
            self.asked.append(file["path"])
            said = self.part(message["root"], file)
            if said is not None:
                crew.heard(name, {"type": "read-part", "id": message["id"], **said})

    def part(self, root, file):
        structure = described(root) if file["crc"] else None
        extents = structure.files[file["path"]] if structure else None
        stamp = look_at(root).files[file["path"]]
        reader = ContentReader(root, structure, Throttle(None))
        job = Job(file["path"], stamp, sha256=file["sha256"], extents=extents)
        (read,) = reader.read_all([job], 1, lambda _: None)
        found = [[f.code, f.path, f.detail] for f in read.findings]
        items = len(extents.starts) if extents else None
        return {"path": file["path"], "size": stamp.size, "xxh3": read.xxh3, "items": items, "findings": found}


class Here(ByThreads):
    """This machine; which files it has read itself is noted."""

    __slots__ = ("read_here",)

    def read(self, folder, structure, jobs, progress, throttle=None):
        self.read_here.extend(job.name for job in jobs)
        return super().read(folder, structure, jobs, progress, throttle)


class Scene:
    """Nodes behind the real crew, without sockets between."""

    def __init__(self, nodes, *, pace=None, grace=1.0, allowed=None):
        self.nodes = nodes
        self.log = []
        self.crew = Reads()
        self.pool = ThreadPoolExecutor(len(nodes) + 1)
        self.rates = []
        self.crew.bind(self._send, lambda f, *a: f(*a))
        self.crew.allow(frozenset(nodes if allowed is None else allowed))
        self.here = Here(2, pace or Pace())
        object.__setattr__(self.here, "read_here", [])
        self.readers = Readers(self.here, self.crew, self.tell, worth=0, grace=grace)

    def tell(self, line, wrong):
        if wrong:
            self.log.append(line)

    def _send(self, name, message):
        if message["type"] == "read-stop":
            self.nodes[name].stopped += 1
        else:
            self.rates.append(message["rate"])
            self.pool.submit(self.nodes[name].answer, self.crew, name, message)
        return True

    def read(self, save, *, first=True, sums=None, progress=lambda _: None):
        look = look_at(str(save))
        structure = described(str(save)) if first else None
        jobs = [
            Job(n, s, xxh3=(sums or {}).get(n), extents=structure.files.get(n) if structure else None)
            for n, s in look.files.items()
        ]
        try:
            return {one.name: one for one in self.readers.read(str(save), structure, jobs, progress)}
        finally:
            self.pool.shutdown()


def alone(save, sums=None):
    """What threads of this machine say of the save."""
    return Scene({}).read(save, sums=sums)


def rot(path):
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)


def test_nodes_say_what_threads_say_and_each_has_its_part(save):
    nodes = {"n1": Node(), "n2": Node()}
    scene = Scene(nodes)
    counts = []
    assert scene.read(save, progress=counts.append) == alone(save)
    assert sum(counts) == sum(path.stat().st_size for path in save.iterdir())
    assert len(nodes["n1"].asked) + len(nodes["n2"].asked) == FILES + 1
    assert min(len(node.asked) for node in nodes.values()) >= 1
    assert len(scene.here.read_here) <= 2  # one of each node, to see whether it tells the truth
    assert all(node.stopped == 1 for node in nodes.values())
    assert scene.log == []


def test_without_a_node_threads_read(save):
    scene = Scene({"n1": Node()}, allowed=())
    assert scene.read(save) == alone(save)
    assert len(scene.here.read_here) == FILES + 1


def test_a_small_save_is_read_here(save):
    nodes = {"n1": Node()}
    scene = Scene(nodes)
    scene.readers = replace(scene.readers, worth=1 << 30)
    assert scene.read(save) == alone(save)
    assert nodes["n1"].asked == []


# --- nodes that lie ------------------------------------------------------------------------------------------------


class WrongSum(Node):
    def part(self, root, file):
        return super().part(root, file) | {"xxh3": "0" * 32}


class SaysBroken(Node):
    def part(self, root, file):
        return super().part(root, file) | {"findings": [["CRC", file["path"], "archive/data/0"]]}


class WrongSize(Node):
    def part(self, root, file):
        said = super().part(root, file)
        return said | {"size": said["size"] + 1}


class Babbles(Node):
    def part(self, root, file):
        return super().part(root, file) | {"findings": [["BAD_METADATA", "x", "y"]]}


class SkipsRecords(Node):
    """It takes sums and checks no record."""

    def part(self, root, file):
        return super().part(root, file | {"crc": False}) | {"items": 0}


LIARS = {"a wrong sum": WrongSum, "damage that is none": SaysBroken, "another size": WrongSize, "nonsense": Babbles}


@pytest.mark.parametrize("kind", LIARS)
def test_one_bad_node_does_not_condemn_a_good_save(save, kind):
    scene = Scene({"bad": LIARS[kind](), "good": Node()})
    assert scene.read(save) == alone(save)
    assert len(scene.log) == 1
    assert scene.log[0].startswith("bad is not believed")


@pytest.mark.parametrize("kind", LIARS)
def test_a_node_that_was_caught_is_not_asked_by_the_next_reading(save, kind):
    bad = LIARS[kind]()
    scene = Scene({"bad": bad, "good": Node()})
    scene.read(save)
    bad.asked.clear()
    scene.pool = ThreadPoolExecutor(3)
    scene.read(save)
    assert bad.asked == []


def test_where_all_nodes_lie_this_machine_reads(save):
    scene = Scene({"b1": SaysBroken(), "b2": WrongSum()})
    assert scene.read(save) == alone(save)


def test_a_node_that_leaves_records_out_is_not_taken_at_its_word(save):
    rot(save / "__3_0.distcp")
    read = Scene({"bad": SkipsRecords()}).read(save)
    assert [f.code for f in read["__3_0.distcp"].findings] == ["CRC"]


def test_on_a_later_read_no_node_knows_the_sum_and_a_wrong_one_is_found_here(save):
    sums = {name: one.xxh3 for name, one in alone(save).items()}
    scene = Scene({"bad": WrongSum(), "good": Node()})
    assert all(one.findings == () for one in scene.read(save, first=False, sums=sums).values())
    assert len(scene.log) == 1


def test_what_is_broken_is_found_by_nodes_and_confirmed_here(save):
    rot(save / "__3_0.distcp")
    scene = Scene({"n1": Node(), "n2": Node()})
    read = scene.read(save)
    assert [f.code for f in read["__3_0.distcp"].findings] == ["CRC"]
    assert scene.here.read_here == ["__3_0.distcp"]
    assert scene.log == []


def test_rot_on_a_later_read_is_confirmed_here(save):
    sums = {name: one.xxh3 for name, one in alone(save).items()}
    rot(save / "__3_0.distcp")
    scene = Scene({"n1": Node(), "n2": Node()})
    read = scene.read(save, first=False, sums=sums)
    assert [name for name, one in read.items() if one.findings] == ["__3_0.distcp"]
    assert [f.code for f in read["__3_0.distcp"].findings] == ["SUM"]


# --- nodes that fail -----------------------------------------------------------------------------------------------


def test_the_files_of_a_node_that_dies_go_to_another(save):
    class Dies(Node):
        def answer(self, crew, name, message):
            if message["files"]:
                self.asked.append(message["files"][0]["path"])
                crew.lost(name)

    dies, good = Dies(), Node()
    scene = Scene({"dies": dies, "good": good})
    assert scene.read(save) == alone(save)
    assert dies.asked
    assert len(dies.asked) <= 3  # it may come back, but not for ever
    assert set(good.asked) | set(scene.here.read_here) == {path.name for path in save.iterdir()}


def test_a_node_that_is_silent_is_given_up(save):
    class Silent(Node):
        def part(self, *_):
            return None

    scene = Scene({"silent": Silent(), "good": Node()}, grace=0.01)
    assert scene.read(save) == alone(save)
    assert scene.nodes["silent"].asked
    assert scene.nodes["silent"].stopped == 1


def test_a_file_that_one_node_can_not_read_is_read_by_another(save):
    class Blind(Node):
        def part(self, _, file):
            return {"path": file["path"], "fault": "Permission denied"}

    class Unreadable(Node):
        def part(self, root, file):
            return super().part(root, file) | {"xxh3": None, "findings": [["UNREADABLE", file["path"], "I/O error"]]}

    scene = Scene({"blind": Blind(), "unreadable": Unreadable(), "good": Node()})
    assert scene.read(save) == alone(save)


def test_a_store_that_no_node_sees_is_read_here_and_told_once(save):
    class Away(Node):
        def answer(self, crew, name, message):
            crew.heard(name, {"type": "read-done", "id": message["id"], "why": "no such folder", "away": True})

    scene = Scene({"n1": Away(), "n2": Away()})
    assert scene.read(save) == alone(save)
    assert len(scene.log) == 1
    scene.pool = ThreadPoolExecutor(3)
    scene.read(save)
    assert len(scene.log) == 1


def test_nodes_that_may_not_read_any_more_are_let_go(save):
    class Leaves(Node):
        def answer(self, crew, _, message):
            self.asked += [file["path"] for file in message["files"]]
            crew.allow(frozenset({"good"}))

    leaves = Leaves()
    scene = Scene({"leaves": leaves, "good": Node()})
    assert scene.read(save) == alone(save)
    assert leaves.stopped == 1


def test_a_file_that_is_gone_is_unreadable_whoever_reads(save):
    look = look_at(str(save))
    jobs = [Job(name, stamp) for name, stamp in look.files.items()]
    os.unlink(save / "__3_0.distcp")

    class Looks(Node):
        def part(self, root, file):
            if not Path(root, file["path"]).exists():
                return {"path": file["path"], "fault": "No such file or directory"}
            return super().part(root, file)

    scene = Scene({"n1": Looks()})
    read = {one.name: one for one in scene.readers.read(str(save), None, jobs, lambda _: None)}
    assert [f.code for f in read["__3_0.distcp"].findings] == ["UNREADABLE"]
    assert all(f.weight is Weight.NOT_YET for one in read.values() for f in one.findings)


def test_a_reading_that_is_cancelled_ends_and_lets_its_nodes_go(save):
    class Cancels(Node):
        def part(self, *_):
            throttle.cancel()

    scene = Scene({"n1": Cancels()})
    throttle = Throttle(scene.here.pace)
    jobs = [Job(name, stamp) for name, stamp in look_at(str(save)).files.items()]
    with pytest.raises(CancelledError):
        scene.readers.read(str(save), None, jobs, lambda _: None, throttle)
    assert scene.nodes["n1"].stopped == 1
    scene.pool.shutdown()


# --- speed, and who goes first -------------------------------------------------------------------------------------


def test_with_a_limit_nodes_get_one_file_after_the_other_and_all_at_once_when_it_is_lifted(save):
    pace = Pace(1.0)  # a byte a second: 13 files would take a week
    given = threading.Event()

    class Notes(Node):
        def part(self, root, file):
            given.set()
            return super().part(root, file)

    node = Notes()
    scene = Scene({"n1": node}, pace=pace)
    reading = threading.Thread(target=lambda: scene.read(save), daemon=True)
    reading.start()
    assert given.wait(20)
    assert len(node.asked) == 1
    assert scene.rates[:1] == [1.0]
    pace.set(None)
    reading.join(20)
    assert not reading.is_alive()
    assert scene.rates[-1] is None
    assert len(node.asked) == FILES + 1


def test_an_incident_takes_the_nodes_of_others(save):
    scene = Scene({"n1": Node(), "n2": Node()})
    crew, boxes = scene.crew, [queue.SimpleQueue() for _ in range(3)]
    seal, view, other = (crew.begin(box) for box in boxes)
    assert crew.claim(seal, first=False, but=frozenset({"n2"})) == {"n1"}
    assert crew.claim(view, first=True, but=frozenset()) == {"n1", "n2"}
    assert boxes[0].get_nowait().node == "n1"
    assert crew.claim(other, first=True, but=frozenset()) == set()
    assert crew.claim(seal, first=False, but=frozenset()) == set()
    crew.end(view)
    assert crew.claim(seal, first=False, but=frozenset()) == {"n1", "n2"}
    scene.pool.shutdown()
