"""The kernel's log as it is written: the ring, the journal, a file, nothing; and whose attempt a line is of."""

from __future__ import annotations

import json
import os
import select
import sys
import time

import pytest

from supervisor.agent.follow import Follower
from supervisor.agent.health.results import State
from supervisor.agent.kernel import DRIFT, Journal, Nothing, Ring, Written, find
from supervisor.evidence.tail import RECORDS, Line

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4411, name=python, GPU has fallen off the bus."
WALL = 1e9  # of the boot, by the clocks of these tests


class Clock:
    def __init__(self, now):
        self.now = now

    def monotonic(self):
        return self.now

    def wall(self):
        return WALL + self.now


@pytest.fixture
def ring(tmp_path):
    """A ring that a test writes records to: (log, its clock, write)."""
    path = str(tmp_path / "kmsg")
    os.mkfifo(path)
    clock = Clock(1000.0)
    log = Ring(path, clock.wall, clock.monotonic)
    hold = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    numbers = iter(range(1, 100))

    def write(since_boot, text=XID):
        os.write(hold, f"3,{next(numbers)},{int(since_boot * 1e6)},-;{text}\n".encode())

    yield log, clock, write
    log.close()
    os.close(hold)


def test_what_was_there_before_is_placed_by_its_stamp_and_no_better_than_the_clocks_drift(ring):
    log, _, write = ring
    write(40.0)
    (line,) = log.look()
    assert (line.wall, line.bound) == (WALL + 40.0, pytest.approx(1000.0 * DRIFT))


@pytest.mark.parametrize("stamp", [940.0, 1060.0])
def test_what_comes_live_lies_between_two_looks_whatever_its_stamp(ring, stamp):
    """After weeks the kernel's own clock is a minute off, to either side."""
    log, clock, write = ring
    assert log.look() == []
    clock.now = 1000.25
    write(stamp)
    (line,) = log.look()
    assert WALL + 1000.0 <= line.wall <= WALL + 1000.25
    assert line.bound == 0.0


def test_a_ring_that_opens_late_is_still_history(tmp_path):
    """Before, it had no lines because it could not be read: what it gives then is not new."""
    path, clock = str(tmp_path / "kmsg"), Clock(1000.0)
    log = Ring(path, clock.wall, clock.monotonic)
    assert log.look() == []
    os.mkfifo(path)
    hold = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(hold, f"3,1,40000000,-;{XID}\n".encode())
    (line,) = log.look()
    assert line.wall == WALL + 40.0
    log.close()
    os.close(hold)


def test_a_long_ring_is_history_until_its_end(tmp_path, monkeypatch):
    """One look takes so many records; the second may still be reading what was there before the first."""
    lines = "".join(f"6,{n},40000000,-;old\n" for n in range(RECORDS + 5)).splitlines(keepends=True)
    path, clock = str(tmp_path / "kmsg"), Clock(1000.0)
    os.mkfifo(path)
    log = Ring(path, clock.wall, clock.monotonic)
    log.look()
    log._caught_up = None
    hold = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    records = iter(lines)
    monkeypatch.setattr(os, "read", lambda _fd, _size: next(records, "").encode())
    first, second = log.look(), log.look()
    monkeypatch.undo()
    assert (len(first), len(second)) == (RECORDS, 5)
    assert {line.wall for line in first + second} == {WALL + 40.0}
    log.close()
    os.close(hold)


def test_a_ring_that_is_read_or_not(ring, tmp_path):
    assert ring[0].verdict().state is State.HEALTHY
    verdict = Ring(str(tmp_path / "none")).verdict()
    assert verdict.state is State.UNKNOWN
    assert "no kernel log" in verdict.text


def entry(text, at, cursor="c1"):
    return json.dumps({"MESSAGE": text, "__REALTIME_TIMESTAMP": str(int(at * 1e6)), "__CURSOR": cursor})


def journal(tmp_path, *lines, then="os.read(0, 1)"):
    """A journalctl that prints these lines, writes down how it was called, and then does something."""
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    script = (
        f"import os, sys; open({str(tmp_path / 'called')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n'); "
        f"sys.stdout.write(open({str(tmp_path / 'lines')!r}).read()); sys.stdout.flush(); {then}"
    )
    return [sys.executable, "-I", "-S", "-c", script]


def wait_for(log, wanted):
    """The first look that gives something, or that finds `wanted` true."""
    while True:
        lines = log.look()
        if lines or wanted(log):
            return lines
        assert select.select([log._process.stdout], [], [], 60)[0], "nothing came"


def test_the_journal(tmp_path):
    bytes_ = entry([88, 105, 100, 255], 6.0, "c2")
    odd = ["no json", "[]", "{}", json.dumps({"MESSAGE": None, "__REALTIME_TIMESTAMP": "5"}), entry("x", 5.0)[:-1]]
    log = Journal(journal(tmp_path, entry(XID, 5.25), *odd, bytes_, then="import threading; threading.Event().wait()"))
    assert log.verdict().state is State.UNKNOWN
    try:
        lines = []
        while len(lines) < 2:
            lines += wait_for(log, lambda _log: False)
        assert [(line.text, line.wall, line.bound) for line in lines] == [(XID, 5.25, 0.0), ("Xid\ufffd", 6.0, 0.0)]
        assert log.verdict().state is State.HEALTHY
        process = log._process
    finally:
        log.close()
    assert process.returncode == -9


def test_a_journalctl_that_ends_is_started_again_where_it_was(tmp_path):
    clock = Clock(1000.0)
    log = Journal(journal(tmp_path, entry("one", 5.0, "c7"), then="0"), clock.monotonic)
    wait_for(log, lambda _log: False)
    wait_for(log, lambda log: log._process is None)
    verdict = log.verdict()
    assert (verdict.state, verdict.text) == (State.UNKNOWN, "no kernel log: journalctl ended")
    assert log.look() == []
    assert log._process is None  # not at once
    clock.now += 31
    wait_for(log, lambda _log: False)
    log.close()
    assert (tmp_path / "called").read_text().splitlines() == ["", "--after-cursor=c7"]


def test_a_journal_that_may_not_be_read_shows_nothing_and_is_unknown(tmp_path):
    log = Journal(journal(tmp_path, then="import threading; threading.Event().wait()"))
    log.look()
    assert "may not read it" in log.verdict().text
    assert log.verdict().state is State.UNKNOWN
    log.close()


def test_a_journalctl_that_can_t_be_started(tmp_path):
    log = Journal([str(tmp_path / "none")])
    assert log.look() == []
    assert log.verdict().state is State.UNKNOWN


def test_the_log_is_found(tmp_path):
    none, file = str(tmp_path / "none"), tmp_path / "kern.log"
    file.write_text("")
    assert isinstance(find("", ring=str(file)), Ring)
    assert isinstance(find("", ring=none, journal=[sys.executable]), Journal)
    nothing = find("", ring=none, journal=["no-such-journalctl"])
    assert isinstance(nothing, Nothing)
    assert (nothing.verdict().state, nothing.look()) == (State.UNKNOWN, [])
    assert "No such file" in nothing.verdict().text
    assert "no-such-journalctl" in nothing.verdict().text
    assert isinstance(find("none"), Nothing)
    assert isinstance(find("/dev/null"), Ring)
    assert isinstance(find(str(file)), Written)


def test_a_file_that_can_be_read_or_not(tmp_path):
    log = Written(str(tmp_path / "kern.log"))
    assert log.verdict().state is State.UNKNOWN
    log.look()
    assert "No such file" in log.verdict().text
    (tmp_path / "kern.log").write_text("one\n")
    assert [line.text for line in log.look()] == ["one"]
    assert log.verdict().state is State.HEALTHY


# --- whose attempt a line is of ------------------------------------------------------------------------------------


def launch(run, attempt, ago, slots):
    folder = run / "attempts" / f"{attempt:04d}"
    (folder / "pids").mkdir(parents=True)
    (folder / "launch.json").write_text(json.dumps({"slots": slots, "ranks_per_node": 2}))
    os.utime(folder / "launch.json", (time.time() - ago, time.time() - ago))
    return folder


class Given:
    """A kernel log that gives lines as a test says."""

    path = "kernel"

    def __init__(self):
        self.lines = []

    def look(self):
        lines, self.lines = self.lines, []
        return lines

    def losses(self):
        return []

    def say(self, ago, text=XID, bound=0.0):
        self.lines.append(Line(text, None, 0.0, None, time.time() - ago, bound))


@pytest.fixture
def given(tmp_path):
    log = Given()
    follower = Follower(str(tmp_path), "n1", 0.25, lambda _rank, _attempt: True)
    follower.listen(log)
    return log, follower


def found(follower):
    return follower.look(time.time(), time.monotonic()).findings


def test_a_line_of_the_kernel_is_a_finding_with_its_node_and_source(tmp_path, given):
    log, follower = given
    folder = launch(tmp_path, 3, 600, ["n0", "n1"])
    follower.attempt(3)
    log.say(5)
    (one,) = found(follower)
    assert (one["node"], one["rank"], one["source"], one["role"]) == ("n1", None, "kernel", "root")
    assert (one["category"], one["attempt"], one["offset_bound"]) == ("hardware.gpu", 3, 0.25)
    assert abs(time.time() - 5 - one["wall"]) < 1
    (folder / "pids" / "rank_00002.json").write_text(json.dumps({"pid": 4411}))
    log.say(4, XID.replace("79,", "48,"))
    (one,) = found(follower)
    assert one["rank"] == 2  # the kernel names its process


@pytest.mark.parametrize(("ago", "bound", "ours"), [(700, 0.0, 0), (500, 0.0, 1), (500, 200.0, 0)])
def test_a_line_from_before_the_attempt_or_that_may_be_is_not_of_it(tmp_path, given, ago, bound, ours):
    log, follower = given
    launch(tmp_path, 3, 600, ["n0", "n1"])
    follower.attempt(3)
    log.say(ago, bound=bound)
    assert len(found(follower)) == ours


def test_lines_wait_until_the_attempt_is_known(tmp_path, given):
    """An agent that is started again in an attempt has read the kernel's ring before it knows when the attempt began."""
    log, follower = given
    log.say(900)
    log.say(5)
    assert found(follower) == ()
    follower.attempt(3)
    assert found(follower) == ()  # its map is not there yet
    launch(tmp_path, 3, 600, ["n0", "n1"])
    assert len(found(follower)) == 1


def test_a_line_between_two_attempts_is_of_neither(tmp_path, given):
    log, follower = given
    launch(tmp_path, 3, 600, ["n0", "n1"])
    follower.attempt(3)
    found(follower)
    follower.attempt(4)
    log.say(0)
    assert found(follower) == ()


def test_the_kernel_of_a_spare_does_not_say_why_the_run_stopped(tmp_path, given):
    log, follower = given
    launch(tmp_path, 3, 600, ["n0", "n2"])
    follower.attempt(3)
    log.say(5)
    (one,) = found(follower)
    assert (one["role"], one["category"]) == ("context", "hardware.gpu")
