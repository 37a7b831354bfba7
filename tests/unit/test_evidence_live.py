"""What the agent's follower makes of logs as they are written: the ranks' own and the machine's."""

from __future__ import annotations

import json
import os
import time

import pytest

from policies import livecase
from supervisor.agent.follow import Follower
from supervisor.evidence.tail import Kmsg, Tail, follow, read_record
from supervisor.observe.messages import finding as read_finding


@pytest.fixture
def run(tmp_path):
    """A run directory with attempt 3 on nodes n0 and n1, two ranks each, launched ten minutes ago."""
    attempt = tmp_path / "attempts" / "0003"
    (attempt / "pids").mkdir(parents=True)
    (attempt / "logs").mkdir()
    launch = attempt / "launch.json"
    launch.write_text(json.dumps({"slots": ["n0", "n1"], "ranks_per_node": 2}))
    os.utime(launch, (time.time() - 600, time.time() - 600))
    (attempt / "pids" / "rank_00003.json").write_text(json.dumps({"pid": 4411}))
    return tmp_path


@pytest.fixture
def follower(run):
    one = Follower(str(run), "n1", 0.1, lambda _rank, _attempt: True)
    one.attempt(3)
    return one


def look(follower):
    return follower.look(time.time(), time.monotonic()).findings


def stamped(ago, text):
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S+00:00', time.gmtime(time.time() - ago))} n1 kernel: {text}\n"


def test_a_ranks_own_words(run, follower):
    log = run / "attempts" / "0003" / "logs" / "rank_00002.log"
    log.write_text("step 1\n\x1b[31mRuntimeError: CUDA error: uncorrectable ECC error encountered\x1b[0m\n")
    (found,) = look(follower)
    assert (found["kind"], found["role"], found["rank"], found["node"], found["line"]) == (
        "cuda-ecc",
        "root",
        2,
        "n1",
        2,
    )
    assert look(follower) == ()


def test_the_collective_that_a_rank_waited_in_reaches_the_case(run, follower):
    (run / "attempts" / "0003" / "logs" / "rank_00002.log").write_text(
        "[rank2]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=19, OpType=BROADCAST, NumelIn=4)\n"
    )
    (told,) = look(follower)
    found = read_finding(json.loads(json.dumps(told)), "n1", 0.0, 0.0)
    assert found is not None
    clue = livecase.clue(found, ("n1",), None)
    assert (clue.seq, clue.op) == (19, "BROADCAST")


@pytest.mark.parametrize(
    "text",
    ["Out of memory: Killed process 4411 (python3)", "Memory cgroup out of memory: Killed process 4411 (pt_main)"],
)
def test_the_victim_of_the_oom_killer_is_a_rank(run, follower, text):
    log = run / "kern.log"
    log.write_text(stamped(5, text))
    follower.watch([str(log)])
    (found,) = look(follower)
    assert (found["rank"], found["category"], found["node"]) == (3, "oom.host", "n1")
    assert abs(time.time() - 5 - found["wall"]) < 2


def test_what_is_older_than_the_attempt_is_not_ours(run, follower):
    log = run / "kern.log"
    log.write_text(stamped(4000, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."))
    follower.watch([str(log)])
    assert look(follower) == ()
    with log.open("a") as file:
        file.write(stamped(0, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."))
    (found,) = look(follower)
    assert (found["category"], found["rank"]) == ("hardware.gpu", None)


def test_the_machines_log_goes_on_over_attempts(run, follower):
    log = run / "kern.log"
    log.write_text(stamped(5, "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5"))
    follower.watch([str(log)])
    assert len(look(follower)) == 1
    follower.attempt(4)
    follower.watch([str(log)])
    assert look(follower) == ()


def test_a_rotated_log_is_said_to_be_so(run, follower):
    log = run / "kern.log"
    log.write_text("one\n")
    follower.watch([str(log)])
    look(follower)
    (run / "new").write_text(stamped(1, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."))
    os.replace(run / "new", log)
    kinds = [found["kind"] for found in look(follower)]
    assert kinds == ["xid-gpu", "log-lost"]


def test_kernel_records():
    assert read_record(b"6,1042,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci\n") == (
        1042,
        5.1409,
        "NVRM: Xid (PCI:0000:3b:00): 79",
    )
    assert read_record(b"no record") is None
    assert read_record(b"") is None


def test_a_device_is_read_as_records_and_what_is_missing_has_none(tmp_path):
    assert isinstance(follow("/dev/null"), Kmsg)
    assert follow("/dev/null").look() == []
    assert isinstance(follow(str(tmp_path / "none")), Tail)
    assert Kmsg(str(tmp_path / "none")).look() == []


def test_a_fifo_of_records_is_followed_and_gaps_are_told(tmp_path):
    path = str(tmp_path / "kmsg")
    os.mkfifo(path)
    ring = Kmsg(path)
    assert ring.look() == []
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"6,10,1000000,-;one\n")
        assert [(x.text, x.since_boot) for x in ring.look()] == [("one", 1.0)]
        os.write(writer, b"6,14,2000000,-;two\n")
        assert [x.text for x in ring.look()] == ["two"]
        assert ring.losses() == ["3 kernel messages were overwritten unread"]
        assert ring.losses() == []
    finally:
        os.close(writer)


def test_the_file_systems_clock_is_not_asked_of_lines_since_the_last_look(run, follower):
    """A file server dates files by its own clock; what came between two looks was written between them."""
    log = run / "kern.log"
    log.write_text("nothing\n")
    follower.watch([str(log)])
    began = time.time()
    follower.look(began, 100.0)
    with log.open("a") as file:
        file.write("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5\n")
    os.utime(log, (began - 500, began - 500))
    (found,) = follower.look(began + 8.0, 108.0).findings
    assert (found["wall"], found["offset_bound"]) == (pytest.approx(began + 4.0), pytest.approx(4.0))


def test_a_stamp_of_whole_seconds_is_known_to_its_second(run, follower):
    """Else an error half a second after it would seem to have come later, and this one to have been survived."""
    log = run / "kern.log"
    log.write_text(stamped(5, "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5"))
    follower.watch([str(log)])
    (found,) = look(follower)
    assert found["wall"] % 1 == 0.5
    assert found["offset_bound"] >= 0.5
