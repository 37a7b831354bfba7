"""A next job that ends before it has taken its run up: whoever looks from outside says so, and so does the job itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import training
from console_run import journaled
from sinks import http_sink

from slurm.awaited import EVERY_S, NOT_TAKEN_S, Awaited, note_of
from slurm.cluster import NotKnown, Unreadable
from slurm.jobs import SUBMISSION, Submission
from slurm.parsing import JobRow
from slurm.states import Phase
from supervisor.commands import not_begun
from supervisor.commands.standing_by import stand_by
from supervisor.errors import UserError
from supervisor.guard.looking import Eye
from supervisor.journal.entries import Ended, JobBegan
from supervisor.rundir import RunDir
from supervisor.settings import Settings, frozen
from supervisor.telling.targets import Targets, leave

START = "2026-12-01T05:15:02"
NEXT = JobRow("13", "PENDING", Phase.WAITING, "", (), "", "Resources")
CANCELLED = replace(NEXT, state="CANCELLED", phase=Phase.ENDED)


class Cluster:
    """A queue with one answer, and a clock that stands until it is turned."""

    def __init__(self, answer: JobRow | Unreadable) -> None:
        self.answer, self.now = answer, 0.0
        self.asked: list[str] = []

    def job(self, one: str) -> JobRow | Unreadable:
        self.asked.append(one)
        return self.answer

    def over(self, awaited: Awaited) -> str:
        self.now += EVERY_S
        return awaited.over("12", START)


def noted(run_dir: str | Path, following: str) -> None:
    os.makedirs(f"{run_dir}/nodes", exist_ok=True)
    Path(f"{run_dir}/nodes/next-12-{START.replace(':', '')}.json").write_text(f'{{"schema": 1, "next": "{following}"}}')


def left(tmp_path: Path, how: str = "next-job", following: str = "13") -> RunDir:
    scene = training()
    scene.say(JobBegan("12", START))
    scene.say(Ended(how))
    run = journaled(tmp_path, scene)
    noted(run.root, following)
    return run


def test_one_that_waits_runs_or_cannot_be_read_is_not_over(tmp_path: Path) -> None:
    noted(tmp_path, "13")
    slurm = Cluster(NEXT)
    awaited = Awaited(str(tmp_path), slurm.job, lambda: slurm.now)
    for answer in (NEXT, replace(NEXT, phase=Phase.RUNNING), Unreadable("slurmctld is away")):
        slurm.answer = answer
        assert slurm.over(awaited) == ""
    slurm.answer = CANCELLED
    assert slurm.over(awaited) == "job 13 is CANCELLED"
    slurm.answer = NotKnown("Invalid job id specified")  # as Slurm says of it five minutes later
    assert slurm.over(awaited) == "job 13 is CANCELLED"
    assert set(slurm.asked) == {"13"}
    assert awaited.over("13", "later") == ""  # that one was left for no other


def test_one_that_slurm_has_forgotten_before_anybody_looked_is_told_of(tmp_path: Path) -> None:
    noted(tmp_path, "13")
    slurm = Cluster(NotKnown("Invalid job id specified"))
    awaited = Awaited(str(tmp_path), slurm.job, lambda: slurm.now)
    assert slurm.over(awaited) == "job 13 is not known to Slurm any more"
    slurm.answer = Unreadable("slurmctld is away")
    assert slurm.over(awaited) == "job 13 is not known to Slurm any more"
    slurm.answer = NEXT  # another slurmctld had answered
    assert slurm.over(awaited) == ""


def test_one_that_runs_for_long_and_does_not_take_the_run_up_is_told_of(tmp_path: Path) -> None:
    """Its batch host was lost, and --no-kill keeps it running; or its script hangs before relight run."""
    noted(tmp_path, "13")
    slurm = Cluster(replace(NEXT, state="RUNNING", phase=Phase.RUNNING, start=START))
    awaited = Awaited(str(tmp_path), slurm.job, lambda: slurm.now)
    for _ in range(int(NOT_TAKEN_S // EVERY_S)):
        assert slurm.over(awaited) == ""
    assert slurm.over(awaited) == "job 13 has run for more than 15 min"
    slurm.answer = Unreadable("slurmctld is away")
    assert slurm.over(awaited) == "job 13 has run for more than 15 min"
    slurm.answer = replace(NEXT, state="RUNNING", phase=Phase.RUNNING, start="2026-12-02T05:15:02")  # requeued
    assert slurm.over(awaited) == ""


def test_slurm_is_asked_now_and_then_and_of_a_requeued_one_by_its_own_id(tmp_path: Path) -> None:
    slurm = Cluster(CANCELLED)
    awaited = Awaited(str(tmp_path), slurm.job, lambda: slurm.now)
    assert slurm.over(awaited) == ""  # nobody has asked for one
    assert slurm.asked == []
    noted(tmp_path, "requeued")
    assert slurm.over(awaited) == "job 12 is CANCELLED"
    assert awaited.over("12", START) == "job 12 is CANCELLED"
    assert slurm.asked == ["12"]


def test_of_a_next_job_whose_note_cannot_be_read_the_end_of_this_one_says_nothing(tmp_path: Path) -> None:
    noted(tmp_path, "13")
    note = Path(note_of(str(tmp_path), "12", START))
    note.write_text(note.read_text()[:9])
    slurm = Cluster(replace(CANCELLED, state="COMPLETED"))  # job 12 is over as it should be; the one that follows waits
    assert slurm.over(Awaited(str(tmp_path), slurm.job, lambda: slurm.now)) == ""


def test_the_guard_sees_it_and_a_watch_says_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = left(tmp_path)
    slurm = Cluster(CANCELLED)
    awaited = Awaited(run.root, slurm.job, lambda: slurm.now)
    seen = Eye(run.root, awaited=awaited).look()
    assert (seen.between, seen.next_over) == (True, "job 13 is CANCELLED")
    rounds = iter(range(3))

    class WaitedError(Exception):
        """Long enough."""

    def pause(_: float) -> None:
        if next(rounds, None) is None:
            raise WaitedError

    with pytest.raises(WaitedError):
        stand_by(run.root, over_jobs=True, pause=pause, awaited=awaited)
    said = capsys.readouterr().err
    assert said == "relight: job 13 is CANCELLED and has not taken demo up: nobody goes on with it\n"


def test_a_job_that_cannot_take_its_run_up_tells_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = left(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    settings = on_slurm(run)
    why = UserError("cluster slurm: the layout needs 8 nodes, job 13 has 7")
    with http_sink() as sink:
        leave(run.root, Targets(urls=(sink.url(),), deadline_s=60))
        not_begun.tell(run, settings.model_copy(update={"cluster": Settings().cluster}), why)  # no job can be meant
        not_begun.tell(run, settings, why)
        said = sink.came.get_nowait()[2]
        assert sink.came.empty()
    assert said["title"] == "relight demo: job 13 can't take it up"
    assert "the layout needs 8 nodes, job 13 has 7." in said["message"]


def test_so_does_one_whose_checkpoints_have_no_place(tmp_path: Path) -> None:
    """Slurm itself does not answer meanwhile: that is waited for, and no reason to end."""
    away = tmp_path / "bin"
    away.mkdir()
    for name in ("srun", "squeue", "sinfo", "scontrol", "scancel"):
        (away / name).write_text("#!/bin/sh\nexit 1\n")
        (away / name).chmod(0o755)
    (tmp_path / "file").touch()
    (tmp_path / "relight.toml").write_text(
        f'[run]\nname = "demo"\n[layout]\ndp = 3\n[checkpoints]\ndir = "{tmp_path}/file/saves"\n'
    )
    run = RunDir(str(tmp_path / "relight-runs" / "demo"))
    run.create()
    env = os.environ | {"SLURM_JOB_ID": "13", "PATH": f"{away}:{os.environ['PATH']}"}
    words = ["-m", "supervisor", "run", "--epoch-only", "--", "true"]
    with http_sink() as sink:
        leave(run.root, Targets(urls=(sink.url(),), deadline_s=60))
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, sink.came.qsize()) == (2, 1), done.stderr
        said = sink.came.get_nowait()[2]
    assert said["title"] == "relight demo: job 13 can't take it up"
    assert "the checkpoint store can't be made: Not a directory." in said["message"]


def test_a_run_that_was_stopped_since_its_next_job_was_asked_for_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = left(tmp_path, "stopped")
    settings = on_slurm(run)
    person = Submission(("--nodes=3", "/shared/job.sbatch"), "/shared")
    monkeypatch.setenv(SUBMISSION, person.text())
    assert not not_begun.stopped_before(run, settings)  # somebody submits it again: they want it to go on
    monkeypatch.setenv(SUBMISSION, replace(person, follows="12").text())
    assert not_begun.stopped_before(run, settings)
    monkeypatch.setenv(SUBMISSION, replace(person, follows="11").text())  # job 12 itself, requeued
    assert not not_begun.stopped_before(run, settings)
    monkeypatch.setenv(SUBMISSION, replace(person, follows="12").text())
    assert not not_begun.stopped_before(left(tmp_path / "on"), settings)  # the usual way


def on_slurm(run: RunDir) -> Settings:
    settings = frozen(run.root)
    return settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"kind": "slurm"})})


def test_who_has_asked_for_a_job_is_read_as_it_was_written() -> None:
    one = Submission(("job.sbatch",), "/shared", 3, "12")
    assert Submission.read(one.text()) == one
    assert Submission.read('{"words": ["job.sbatch"], "cwd": "/"}') == Submission(
        ("job.sbatch",), "/"
    )  # of an older one
    assert Submission.read(json.dumps({"words": ["job.sbatch"], "cwd": "/", "follows": 12})) is None
