"""`relight watch`: it stands by while another controller lives, and does nothing for a run that is over."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from builders import training
from click.testing import CliRunner
from console_run import journaled

from policies.reasons import Reason
from slurm.cluster import Unreadable
from supervisor import clusters
from supervisor.clusters import OUTSIDE, in_its_job, open_cluster
from supervisor.commands.watch import command
from supervisor.errors import UserError
from supervisor.journal.entries import HaltedEntry
from supervisor.journal.lease import Lease
from supervisor.rundir import RunDir
from supervisor.settings import ClusterSettings, RunSettings, Settings

TAKE = """
import sys, time
from supervisor.journal.lease import Lease
Lease(sys.argv[1], time.time()); print("held", flush=True); sys.stdin.read()
"""


def called(*words):
    return CliRunner().invoke(command, [*words], standalone_mode=False)


def test_the_templates_are_there():
    folder = called("--templates").stdout.strip()
    assert sorted(os.listdir(folder)) == ["relight-watch.service", "watch.sbatch"]
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            assert "relight watch" in file.read()
    with open(os.path.join(folder, "watch.sbatch"), encoding="utf-8") as file:
        assert subprocess.run(["bash", "-n"], input=file.read(), text=True, check=False).returncode == 0


def test_which_run_must_be_said():
    assert isinstance(called().exception, UserError)


def test_outside_the_job_it_is_the_one_that_last_ran_the_run(tmp_path):
    settings = Settings(run=RunSettings(name="demo"), cluster=ClusterSettings(kind="slurm"))
    with pytest.raises(UserError, match="no job has run it yet"):
        open_cluster(RunDir(str(tmp_path)), settings, OUTSIDE)
    (tmp_path / "job.json").write_text('{"schema": 1, "job": "../7"}')
    with pytest.raises(UserError, match="is no job"):
        open_cluster(RunDir(str(tmp_path)), settings, OUTSIDE)


def halted():
    scene = training()
    scene.say(HaltedEntry(Reason.NO_SPARE, "nothing is left", "a spare", None))
    return scene


def test_it_stands_by_while_another_one_lives_and_leaves_a_halted_run_to_people(tmp_path):
    run = journaled(tmp_path, halted())
    holder = subprocess.Popen(
        [sys.executable, "-c", TAKE, run.path("lease")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    told = []
    watching = threading.Thread(target=lambda: told.append(called(run.root)))
    watching.start()
    watching.join(1.0)
    assert watching.is_alive()
    holder.communicate()
    watching.join(30.0)
    (answer,) = told
    assert answer.return_value == 93
    assert f"standing by; controller {holder.pid}" in answer.stderr
    assert "relight runbook no-spare" in answer.stderr


def test_the_job_that_runs_a_run_is_noted_unless_another_one_is_at_it(tmp_path, monkeypatch):
    """Else `relight watch` would ask Slurm about a job that was just refused."""
    run = RunDir(str(tmp_path))
    settings = Settings(run=RunSettings(name="demo"), cluster=ClusterSettings(kind="slurm"))
    monkeypatch.setenv("PATH", str(tmp_path))  # not all of Slurm is here: it ends right after
    answers(tmp_path, "squeue", "slurm_load_jobs error: Invalid job id specified")  # job 7 is over for long

    def opened(job):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        with pytest.raises(UserError, match="not found in PATH"):
            open_cluster(run, settings)
        return in_its_job(run)

    assert opened("7")
    assert opened("8")
    Lease(run.path("lease"), time.time())
    assert not opened("9")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert in_its_job(run)


def answers(folder, name, error):
    """A command of Slurm that fails."""
    (folder / name).write_text(f"#!/bin/sh\necho {error} >&2\nexit 1\n")
    (folder / name).chmod(0o755)


def test_a_run_is_not_taken_from_a_job_that_cannot_be_asked_for(tmp_path, monkeypatch):
    """Its batch host may be lost and its ranks train. Slurm is away at first, and then says that it runs."""
    run = RunDir(str(tmp_path))
    Path(run.path("job.json")).write_text('{"schema": 1, "job": "17"}')
    settings = Settings(run=RunSettings(name="demo"), cluster=ClusterSettings(kind="slurm"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    monkeypatch.setattr(clusters, "UNREAD_S", 0.01)
    away = tmp_path / "away"
    away.touch()
    row = "17|RUNNING|2026-12-01T05:15:02|n001|n001|None"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ntest ! -e {away} || {{ rm {away}; exit 1; }}\n")
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ntest ! -e {away} || exit 1\necho '{row}'\n")
    for name in ("scontrol", "squeue"):
        (tmp_path / name).chmod(0o755)
    with pytest.raises(UserError, match="job 17 still runs"):
        open_cluster(run, settings)
    assert not away.exists()
    away.touch()
    answers(tmp_path, "scontrol", "away")
    monkeypatch.setattr(clusters, "UNREAD_MAX_S", 0.05)
    with pytest.raises(UserError, match="whether it still does can't be read: scontrol ping ended"):
        open_cluster(run, settings)
    assert Path(run.path("job.json")).read_text() == '{"schema": 1, "job": "17"}'


def test_outside_a_job_that_waits_to_begin_is_waited_for(tmp_path, monkeypatch):
    """It was requeued: it has no nodes yet. Whoever watches it would else end for good."""
    run = RunDir(str(tmp_path))
    Path(run.path("job.json")).write_text('{"schema": 1, "job": "17"}')
    for name in ("srun", "sinfo", "scontrol", "scancel"):
        answers(tmp_path, name, "no")
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '17|PENDING|N/A|||BeginTime'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    settings = Settings(run=RunSettings(name="demo"), cluster=ClusterSettings(kind="slurm"))
    assert open_cluster(run, settings, OUTSIDE).cluster.read().job.phase == "waiting"


def test_slurm_that_is_away_is_no_reason_to_end_the_job(tmp_path, monkeypatch):
    """The loop waits for it; a controller that ended here would take every rank with it."""
    for name in ("srun", "squeue", "sinfo", "scontrol", "scancel"):
        answers(tmp_path, name, "slurm_load_jobs error: Unable to contact slurm controller")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n001")
    settings = Settings(run=RunSettings(name="demo"), cluster=ClusterSettings(kind="slurm"))
    opened = open_cluster(RunDir(str(tmp_path)), settings)
    assert isinstance(opened.cluster.read(), Unreadable)
    assert opened.listen.tell == "n001"
