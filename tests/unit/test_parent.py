"""The parent of the controller: what it does when its child dies, and when it is asked to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import APPROVE, training
from click.testing import CliRunner
from console_run import journaled

from policies.reasons import Reason
from supervisor import parent
from supervisor.commands import asking
from supervisor.commands.run import command, hold, may_train
from supervisor.commands.standing_by import stand_by
from supervisor.errors import HALTED_EXIT, OWN_FAULT_EXIT, REFUSED_EXIT, UserError
from supervisor.journal import requests
from supervisor.journal.entries import Ended, HaltedEntry, JobBegan
from supervisor.journal.requests import Request

PARENT = """
import sys
from supervisor import parent
sys.exit(parent.keep(lambda stop, _: [sys.executable, "-c", sys.argv[1], sys.argv[2], stop]))
"""
STARTING = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    print("stop=" + sys.argv[2], file=file)
if sys.argv[2]:
    sys.exit(0)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
CRASHING = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    print("stop=" + sys.argv[2], file=file)
os.kill(os.getpid(), signal.SIGKILL)
"""


def kept(child: str, told: Path) -> int:
    return subprocess.run([sys.executable, "-c", PARENT, child, str(told)], check=False, timeout=60).returncode


def test_a_stop_that_kills_a_controller_that_only_starts_is_told_to_the_next(tmp_path: Path) -> None:
    """Its handlers are not there yet: the signal ends it, and the wish must not end with it."""
    told = tmp_path / "told"
    assert kept(STARTING, told) == 0
    assert told.read_text() == f"stop=\nstop={signal.SIGTERM.name}\n"


def test_a_controller_that_dies_is_started_five_times_more_and_not_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert kept(CRASHING, told) == 70
    assert told.read_text() == "stop=\n" * 6


@pytest.mark.parametrize("code", [0, 2, 3, 4, 93])
def test_an_answer_is_no_accident(code: int, tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert kept(f"import sys; open(sys.argv[1], 'a').write('began'); sys.exit({code})", told) == code
    assert told.read_text() == "began"


def test_a_job_whose_controllers_keep_dying_is_held_and_tried_again(tmp_path: Path) -> None:
    """To end it would end every rank. A run that is over meanwhile is not; one that was taken over is left to whoever has it."""
    scene = training()
    run = journaled(tmp_path, scene)
    waited: list[float] = []
    assert hold(run.root, OWN_FAULT_EXIT, waited.append) is None
    assert waited == [parent.WINDOW_S]
    assert hold(run.root, REFUSED_EXIT, waited.append) is None  # nobody is there any more
    assert waited == [parent.WINDOW_S]
    scene.say(Ended("finished"))
    assert hold(journaled(tmp_path, scene, "over").root, OWN_FAULT_EXIT, waited.append) == 0
    scene.say(Ended("next-job"))
    left = journaled(tmp_path, scene, "left").root
    assert hold(left, REFUSED_EXIT, waited.append) == 0  # for the job that was left, all is over


def test_a_controller_that_cannot_begin_ends_no_job_in_which_ranks_may_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One had died, and the next one found a relight.toml that was being edited: exit 2."""
    scene = training()
    began = scene.history.epoch_began_at
    run = journaled(tmp_path, scene)
    assert may_train(run.root, began)
    assert not may_train(run.root, began + 1)  # it is another job that has begun it
    scene = training(APPROVE)
    scene.die(1)
    scene.settle()  # a plan waits, and every rank is gone
    assert not may_train(journaled(tmp_path, scene, "down").root, began)
    assert may_train(str(tmp_path / "not-there"), began)

    codes, held = iter([2, 0]), list[int]()
    monkeypatch.setattr("supervisor.parent.keep", lambda _: next(codes))
    monkeypatch.setattr("supervisor.clusters.in_its_job", lambda _: True)
    monkeypatch.setattr("supervisor.commands.run.may_train", lambda *_: True)
    monkeypatch.setattr("supervisor.commands.run.hold", lambda _, code: held.append(code))
    words = ["--run-dir", str(tmp_path / "new"), "--", "true"]
    assert CliRunner().invoke(command, words, standalone_mode=False).return_value == 0
    assert held == [2]


@pytest.mark.parametrize("outside", [False, True])
def test_who_stands_by_outlasts_what_cannot_be_read(
    outside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the job its end is the end of every rank; a cache of NFS that is behind, or an error of it, passes."""
    scene = training()
    scene.say(Ended("finished"))
    root = journaled(tmp_path, scene).root
    damaged = UserError("000001.jsonl:2: not what was written", OWN_FAULT_EXIT)
    faults: list[Exception] = [damaged, damaged, OSError(116, "Stale file handle")]
    waited: list[float] = []

    def looked(where: str) -> asking.Seen:
        if faults:
            raise faults.pop(0)
        return asking.look(where)

    monkeypatch.setattr("supervisor.commands.standing_by.look", looked)
    assert stand_by(root, over_jobs=outside, pause=waited.append) == 0
    assert len(waited) == 3
    said = capsys.readouterr().err
    assert said.count("not what was written") == 1
    assert said.count("Stale file handle") == 1


class WaitedError(Exception):
    """Who stands by has waited."""


def wait(_: float) -> None:
    raise WaitedError


def test_outside_a_run_that_left_its_job_is_waited_for_unless_nobody_has_asked_for_the_next_one(tmp_path: Path) -> None:
    """The batch host may be lost after the run has left, and before the next job was asked for: nobody else would."""
    scene = training()
    scene.say(JobBegan("12", "2026-12-01T05:15:02"))
    scene.say(Ended("next-job"))
    run = journaled(tmp_path, scene)
    assert stand_by(run.root, over_jobs=True, pause=wait) is None
    settings = Path(run.path("settings.json"))
    before = settings.read_text()
    settings.write_text(before.replace('"next_job": "auto"', '"next_job": "sbatch"'))
    with pytest.raises(WaitedError):  # from outside it can't be had: whoever submits it again finds the run free
        stand_by(run.root, over_jobs=True, pause=wait)
    settings.write_text(before)
    os.makedirs(run.path("nodes"), exist_ok=True)
    note = Path(run.path("nodes", "next-12-2026-12-01T051502.json"))
    for text in ('{"schema": 1, "next": "13"}', "torn"):
        note.write_text(text)
        with pytest.raises(WaitedError):
            stand_by(run.root, over_jobs=True, pause=wait)


def test_outside_a_halted_run_is_taken_over_when_a_person_has_lifted_the_halt(tmp_path: Path) -> None:
    """The word waits in the run directory, and only a controller can hear it."""
    scene = training()
    scene.say(HaltedEntry(Reason.NO_SPARE, "nothing is left", "a spare", None))
    run = journaled(tmp_path, scene)
    assert stand_by(run.root, over_jobs=True, pause=wait) == HALTED_EXIT
    requests.file(
        run.root, Request(id=requests.new_id(scene.now), what="resume", who="li", at=scene.now, why="a spare")
    )
    assert stand_by(run.root, over_jobs=True, pause=wait) is None


WATCHING = """
import sys
from supervisor import parent
sys.exit(parent.keep(lambda _stop, _: [sys.executable, "-c", sys.argv[1], sys.argv[2]], stops=False))
"""
WATCHED = """
import os, signal, sys
with open(sys.argv[1], "a") as file:
    print("began", file=file)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


def test_a_signal_ends_a_watch_and_asks_for_no_stop(tmp_path: Path) -> None:
    """The service is restarted, the machine shut down: the training outside of it goes on."""
    told = tmp_path / "told"
    done = subprocess.run([sys.executable, "-c", WATCHING, WATCHED, str(told)], check=False, timeout=60)
    assert done.returncode == 0
    assert told.read_text() == "began\n"
