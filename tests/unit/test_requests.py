"""Requests: filed whole, read with suspicion, answered once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.journal import requests
from supervisor.journal.requests import Answer, Request
from supervisor.rundir import RunDir

ID = "00000000001000-0a0b0c0d"


@pytest.fixture
def run(tmp_path: Path) -> str:
    RunDir(str(tmp_path)).create()
    return str(tmp_path)


def put(run: str, raw: bytes, name: str = f"{ID}.json") -> None:
    Path(run, "requests", name).write_bytes(raw)


def good(**changes: object) -> bytes:
    return json.dumps({"schema": 1, "id": ID, "what": "halt", "who": "li", "at": 1.0} | changes).encode()


def test_what_is_filed_is_read_oldest_first(run: str) -> None:
    second, first = (Request(requests.new_id(at), "halt", "li", at, why="w\u00fc") for at in (20.0, 3.0))
    for one in (second, first):
        requests.file(run, one)
    assert requests.pending(run) == [first, second]
    assert first.id != requests.new_id(3.0)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"[1]",
        b"null",
        b'"halt"',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"\xff\xfe",
        good(what="rm -rf"),
        good(id="../../etc/passwd"),
        good(id="00000000001000-0a0b0c0e"),
        good(who="x" * 2001),
        good(who=None),
        good(at="soon"),
        good(digest="../x"),
        good(checkpoint="../../saves"),
        good(why="x" * 70_000),
        good(spares="n0"),
        good(who="\ud800"),
        b'{"schema":1,"id":"' + ID.encode() + b'","what":"halt","who":"\\ud800","at":1.0}',
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_a_hostile_request_is_set_aside_and_the_next_is_read(run: str, raw: bytes) -> None:
    put(run, raw)
    other = Request("00000000002000-00000000", "pause", "li", 2.0)
    requests.file(run, other)
    assert requests.pending(run) == [other]
    bad = os.listdir(os.path.join(run, "requests", "bad"))
    assert len(bad) == 1
    assert bad[0].endswith(f"{ID}.json")
    assert requests.pending(run) == [other]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nowhere", "loop"])
def test_what_is_no_file_is_set_aside(run: str, kind: str) -> None:
    path = os.path.join(run, "requests", f"{ID}.json")
    if kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.symlink(path if kind == "loop" else "nowhere", path)
    assert requests.pending(run) == []
    assert requests.pending(run) == []


def test_the_same_name_may_be_bad_twice(run: str) -> None:
    for _ in range(2):
        put(run, b"{")
        assert requests.pending(run) == []
    assert len(os.listdir(os.path.join(run, "requests", "bad"))) == 2


def test_a_name_of_full_length_is_set_aside(run: str) -> None:
    put(run, b"{", "z" * 250 + ".json")
    assert requests.pending(run) == []
    assert len(os.listdir(os.path.join(run, "requests", "bad"))) == 1


def test_other_names_are_left_alone(run: str) -> None:
    put(run, b"half", f"{ID}.json.77.aa.tmp")
    assert requests.pending(run) == []
    assert os.path.exists(os.path.join(run, "requests", f"{ID}.json.77.aa.tmp"))


def test_an_answer_is_left_once_and_takes_the_request_away(run: str) -> None:
    put(run, good())
    first, second = Answer(ID, "done", "halted", 0), Answer(ID, "refused", "other", 4)
    assert requests.read_answer(run, ID) is None
    requests.answer(run, first)
    requests.answer(run, second)
    assert requests.read_answer(run, ID) == first
    assert requests.pending(run) == []


def test_an_answer_that_cannot_be_understood_is_none(run: str) -> None:
    Path(run, "requests", "answers", f"{ID}.json").write_bytes(b'{"id":1}')
    assert requests.read_answer(run, ID) is None


def test_a_request_is_filed_once(run: str) -> None:
    """Sent twice under one id, the first stands."""
    requests.file(run, Request(ID, "halt", "li", 1.0))
    requests.file(run, Request(ID, "pause", "li", 1.0))
    assert [r.what for r in requests.pending(run)] == ["halt"]


def test_ten_thousand_nodes_are_read_and_what_could_not_be_read_is_not_filed(run: str) -> None:
    """What can't be read is set aside, and its sender would wait for an answer in vain."""
    many = Request(ID, "unbar", "li", 1.0, nodes=tuple(f"node{number:05d}" for number in range(10_000)))
    requests.file(run, many)
    assert requests.pending(run) == [many]
    long = Request("00000000001001-0a0b0c0d", "unbar", "li", 1.0, nodes=("n" * 2000,) * 1000)
    with pytest.raises(ValueError, match="bytes"):
        requests.file(run, long)
    assert requests.pending(run) == [many]
