"""What an agent says about a file is hostile until checked, and only the reading that has the node hears it."""

from __future__ import annotations

import queue

import pytest

from supervisor.checkpoints.readers_said import Gone, Nonsense, Part, Unable
from supervisor.checkpoints.reading.findings import Finding
from supervisor.observe.reads import DISTRUST_S, Reads, said_of

GOOD = {
    "type": "read-part", "node": "n1", "id": "x", "path": "__0_0.distcp", "size": 5, "xxh3": "a" * 32, "items": 3,
    "findings": [["CRC", "__0_0.distcp", "w"]],
}  # fmt: skip


def test_what_makes_sense_is_heard():
    found = (Finding("CRC", "__0_0.distcp", "w"),)
    assert said_of("n1", GOOD) == Part("n1", "__0_0.distcp", 5, "a" * 32, 3, found)
    assert said_of("n1", {"type": "read-part", "path": "a", "fault": "gone"}) == Unable("n1", "a", "gone")
    assert said_of("n1", {"type": "read-done", "why": "x", "away": True}) == Gone("n1", "x", away=True)


@pytest.mark.parametrize(
    "wrong",
    [{"path": 5}, {"path": ""}, {"path": "x" * 256}, {"path": None}, {"size": "5"}, {"size": -1}, {"size": 1 << 53},
     {"size": True}, {"size": None}, {"xxh3": "a" * 31}, {"xxh3": "A" * 32}, {"xxh3": 5}, {"items": -1}, {"items": 1.5},
     {"findings": "CRC"}, {"findings": [["CRC"]]}, {"findings": [["MISSING_FILE", "a", "b"]]}, {"findings": [["?", "", ""]]},
     {"findings": [["CRC", 1, "b"]]}, {"findings": [["CRC", "a", "b"]] * 65}, {"fault": 5}],
)  # fmt: skip
def test_what_makes_none_is_nonsense(wrong):
    assert isinstance(said_of("n1", GOOD | wrong), Nonsense)


@pytest.mark.parametrize("wrong", [{"why": 5}, {"away": "yes"}, {"why": "\x1b[2J" * 100}])
def test_an_end_is_an_end_whatever_it_says(wrong):
    said = said_of("n1", {"type": "read-done", "why": "x"} | wrong)
    assert isinstance(said, Gone)
    assert not said.away
    assert said.why.isprintable()


def test_a_terminal_obeys_nothing_that_a_node_says():
    said = said_of("n1", GOOD | {"findings": [["CRC", "\x1b[2J", "\x07"]]})
    assert said.findings == (Finding("CRC", "?[2J", "?"),)


class Line:
    """Agents that are there, or not; what is sent to them is kept."""

    def __init__(self, *there):
        self.there = set(there)
        self.sent = []

    def __call__(self, node, message):
        self.sent.append((node, message["type"]))
        return node in self.there


def crew_of(*nodes, clock=lambda: 0.0, there=None):
    crew, line = Reads(clock), Line(*(nodes if there is None else there))
    later = []
    crew.bind(line, lambda f, *a: later.append((f, a)))
    crew.allow(frozenset(nodes))

    def deliver():
        while later:
            f, a = later.pop(0)
            f(*a)

    return crew, line, deliver


def test_only_the_reading_that_has_a_node_hears_it():
    crew, _, _ = crew_of("n1", "n2")
    box, other = queue.SimpleQueue(), queue.SimpleQueue()
    name, _ = crew.begin(box), crew.begin(other)
    assert crew.claim(name, first=False, but=frozenset({"n2"})) == {"n1"}
    assert crew.heard("n1", GOOD | {"id": name})
    assert not crew.heard("n2", GOOD | {"id": name})
    assert not crew.heard("n1", GOOD | {"id": "another"})
    assert not crew.heard("n1", {"type": "read-part"})
    assert box.get_nowait().path == "__0_0.distcp"
    assert box.empty()
    assert other.empty()


def test_a_node_that_is_not_there_is_gone():
    crew, line, deliver = crew_of("n1", there=())
    box = queue.SimpleQueue()
    name = crew.begin(box)
    crew.claim(name, first=False, but=frozenset())
    crew.ask(name, "n1", {"files": []})
    deliver()
    assert isinstance(box.get_nowait(), Gone)
    crew.ask(name, "n9", {"files": []})
    assert box.get_nowait().node == "n9"
    assert line.sent == [("n1", "read")]


def test_whoever_may_read_no_more_is_gone_and_whoever_is_distrusted_waits():
    now = [0.0]
    crew, line, deliver = crew_of("n1", "n2", clock=lambda: now[0])
    box = queue.SimpleQueue()
    name = crew.begin(box)
    crew.claim(name, first=False, but=frozenset())
    crew.allow(frozenset({"n2"}))
    assert box.get_nowait() == Gone("n1", "it may not read any more")
    crew.release(name, "n2", "it lied")
    deliver()
    assert line.sent == [("n2", "read-stop")]
    assert crew.claim(name, first=False, but=frozenset()) == set()
    now[0] = DISTRUST_S + 1
    assert crew.claim(name, first=False, but=frozenset()) == {"n2"}


def test_without_a_controller_nobody_reads():
    crew, _, _ = crew_of("n1")
    box = queue.SimpleQueue()
    name = crew.begin(box)
    crew.claim(name, first=False, but=frozenset())
    crew.unbind()
    assert isinstance(box.get_nowait(), Gone)
    assert crew.claim(name, first=False, but=frozenset()) == set()
    crew.end(name)
