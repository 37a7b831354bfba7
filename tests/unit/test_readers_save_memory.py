"""What a save takes of the host's memory: seen by the agent while it is written, told with the beats, kept with its cost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from supervisor.agent.save_memory import LONGEST_S, SaveMemory
from supervisor.observe.intake import Intake
from supervisor.observe.progress import Progress


def said(state, step=40, attempt=1, kind="save"):
    return {"k": kind, "a": attempt, "step": step, "state": state}


def test_a_save_is_watched_from_its_first_byte_to_its_last():
    memory = SaveMemory()
    assert not memory.watches(0.0)
    assert not memory.heard(said("written"), 0.0)
    assert memory.heard(said("begin"), 1.0)
    assert not memory.heard(said("begin"), 1.0)  # another rank of the node
    assert memory.watches(2.0)
    memory.heard(said("blocked"), 3.0)
    assert memory.watches(3.0)
    memory.heard(said("written"), 4.0)
    assert not memory.watches(4.0)
    assert memory.heard(said("begin", 60), 5.0)
    memory.heard(said("failed", 60), 6.0)
    assert not memory.watches(6.0)
    assert not memory.heard(said("begin", 50), 7.0)


def test_where_nobody_says_that_it_is_written_it_is_watched_for_a_while():
    memory = SaveMemory()
    memory.heard(said("begin"), 0.0)
    assert memory.watches(LONGEST_S - 1)
    assert not memory.watches(LONGEST_S)


@pytest.mark.parametrize("wrong", [{"k": "step"}, {"step": "40"}, {"a": None}, {"state": 5}, {"step": None}])
def test_what_makes_no_sense_is_not_watched(wrong):
    memory = SaveMemory()
    assert not memory.heard(said("begin") | wrong, 0.0)
    assert memory.told() is None


def test_what_a_process_and_its_children_take_is_seen_and_the_peak_is_kept():
    code = (
        "import os, sys\n"
        "held = bytearray(os.urandom(1 << 20) * 40)\n"
        "print(1, flush=True)\n"
        "sys.stdin.readline()\n"
        "del held\n"
        "print(2, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    memory = SaveMemory()
    memory.heard(said("begin"), 0.0)
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout.readline() == b"1\n"
            memory.look([rank.pid])
            _, _, peak = memory.told()
            assert 40 << 20 < peak < 200 << 20
            rank.stdin.write(b"\n")
            rank.stdin.flush()
            assert rank.stdout.readline() == b"2\n"
            memory.look([rank.pid])
            assert memory.told() == [1, 40, peak]
        finally:
            rank.stdin.close()


def test_cgroups_of_their_own_tell_it_and_one_that_holds_the_agent_does_not(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    for pid, group in ((7, "/job/step/task_0"), (8, "/job/step/task_1"), (9, "/job"), (os.getpid(), "/job/agent")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(f"0::{group}\n")
    (proc / "9" / "statm").write_text("500 300 100 1 0 1 0\n")
    for number in (0, 1):
        folder = groups / f"job/step/task_{number}"
        folder.mkdir(parents=True)
        (folder / "memory.stat").write_text("anon 1000\nfile 99999\nshmem 10\n")
    memory = SaveMemory(str(proc), str(groups))
    memory.heard(said("begin"), 0.0)
    memory.look([7, 8])
    assert memory.told() == [1, 40, 2020]
    other = SaveMemory(str(proc), str(groups))
    other.heard(said("begin"), 0.0)
    other.look([9])
    assert other.told() == [1, 40, 200 * os.sysconf("SC_PAGE_SIZE")]


def peak_of(intake):
    (save,) = intake.attempts[1].view(True).saves
    return save.host_peak_bytes


def test_the_node_that_took_most_counts_and_what_comes_late_does_not():
    intake = Intake()
    intake.begin(1, 2)
    progress: Progress = intake.attempts[1]
    intake.saving([1, 40, 900], 0.5)  # of a save that nobody knows
    progress.save(40, "begin", 1.0)
    for told in ([1, 40, 500], [1, 40, 700], [1, 40, 600], [1, 39, 900], [2, 40, 900], None):
        intake.saving(told, 2.0)
    assert peak_of(intake) == 700
    progress.save(40, "written", 11.0, 10.0, 1)
    intake.saving([1, 40, 800], 12.0)
    intake.saving([1, 40, 900], 60.0)
    assert peak_of(intake) == 800
    assert intake.ignored == 0


@pytest.mark.parametrize("wrong", ["x", [], [1, 40], [1, 40, -1], [1, 40, 1.5], [True, 40, 1], [1, None, 5], {}])
def test_hostile_words_about_memory_are_counted(wrong):
    intake = Intake()
    intake.begin(1, 2)
    intake.saving(wrong, 0.0)
    assert intake.ignored == 1
