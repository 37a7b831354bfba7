"""A drill's scratch place: nobody else's folder, nothing for the archive, and nothing in it outlives whoever began the drill."""

import json
import os
import select
import signal
import subprocess
import sys

import pytest
from test_drills import SAVE, run, settings_of  # noqa: F401 - its fixture

from supervisor.checkpoints.archive import recover_record
from supervisor.drills import training
from supervisor.drills.drilling import Wish, drill, reading_of
from supervisor.journal.lease import read_holder
from supervisor.rundir import RunDir
from supervisor.stores import archive_of, open_store

LIMIT_S = 120  # only a hang reaches it


def test_a_folder_that_was_there_is_left_alone(run, tmp_path):  # noqa: F811
    """Its own from before, another run's drill, a person's: the name says nothing."""
    theirs = tmp_path / "s" / "drill-0001"
    theirs.mkdir(parents=True)
    (theirs / "notes").write_text("mine")
    one = drill(run, settings_of(run), Wish("shared", "bytes", scratch=str(tmp_path / "s")), lambda _: None)
    assert (one.ok, one.number) == (True, 1)
    assert (theirs / "notes").read_text() == "mine"
    assert os.listdir(tmp_path / "s") == ["drill-0001"]


def test_the_archive_keeps_the_records_of_drills_and_not_the_runs_that_they_were(run, tmp_path):  # noqa: F811
    settings = settings_of(run)
    one = drill(run, settings, Wish("shared", "bytes", keep=True), lambda _: None)
    scratch = RunDir(run.path("drills", f"{one.number:04d}"))
    training.prepare(scratch, settings, scratch.path("checkpoints"))
    assert len(scratch.token()) == 32
    archive = archive_of(settings, open_store(run, settings))
    archive.keep_record(run.root)
    names = recover_record(settings.archive.place, settings.run.name, str(tmp_path / "back"))
    assert [name for name in names if name.startswith("drills/")] == ["drills/0001.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_drill_has_started_ends_with_it(run, tmp_path, number):  # noqa: F811
    ranks, path = tmp_path / "ranks", run.path("settings.json")
    os.mkfifo(ranks)
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    settings |= {"command": ["/bin/sh", "-c", f"echo $$ > {ranks}; exec sleep 600"], "cwd": str(tmp_path)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file)
    words = [sys.executable, "-m", "supervisor", "drill", "shared", run.root, "--level", "load"]
    scratch = RunDir(run.path("drills", "0001"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as begun:
        with open(ranks, encoding="ascii") as file:
            pids = [int(file.readline()), read_holder(scratch.path("lease")).pid]
        ends = [os.pidfd_open(pid) for pid in pids]
        begun.send_signal(number)
        assert begun.wait(LIMIT_S) == (-number if number == signal.SIGKILL else 128 + number)
    for end in ends:
        assert select.select([end], [], [], LIMIT_S)[0], "it goes on, and nobody waits for it"
        os.close(end)
    assert os.path.exists(scratch.root) == (number == signal.SIGKILL)


def test_the_room_of_the_next_save_is_not_taken(run, monkeypatch):  # noqa: F811
    settings, (state,) = settings_of(run), open_store(run, settings_of(run)).scan()
    found = os.statvfs(run.root)
    few = type("Few", (), {"f_bavail": 2 * state.bytes - 1, "f_frsize": 1, "f_namemax": found.f_namemax})
    monkeypatch.setattr(os, "statvfs", lambda _path: few)
    one = drill(run, settings, Wish("archive", "bytes"), lambda _: None)
    assert "room of the run's next save" in one.why
    assert drill(run, settings, Wish("shared", "bytes"), lambda _: None).ok  # takes none


def test_a_limit_of_reading_holds_while_the_run_trains(run):  # noqa: F811
    settings = settings_of(run)
    limited = settings.checkpoints.model_copy(update={"read_mb_s": 100.0})
    settings = settings.model_copy(update={"checkpoints": limited})
    beside, alone = reading_of(settings, beside=True), reading_of(settings, beside=False)
    assert beside.urgent is beside.beside
    assert beside.urgent_pace is beside.pace  # what comes from the archive
    assert beside.rate == 100e6
    assert alone.urgent is not alone.beside
    assert drill(run, settings, Wish("archive", "bytes", beside=True), lambda _: None).ok
