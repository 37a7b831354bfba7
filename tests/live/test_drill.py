"""The way back tried on the real trainer: from the archive until its next update, as after a recovery."""

import json
import os
import subprocess
import sys

import pytest

from supervisor.bench.real_run import RealRun, Shape

pytestmark = [pytest.mark.real, pytest.mark.slow]


def relight(*words):
    told = subprocess.run([sys.executable, "-m", "supervisor", *words], check=False, capture_output=True, text=True)
    return told.returncode, told.stdout, told.stderr


def test_a_run_is_started_from_its_archive_in_a_scratch_place(tmp_path):
    shape = Shape(tp=1, pp=1, dp=2, ranks_per_node=1, spares=0, steps=16, save_every=8)
    one = RealRun(str(tmp_path), shape, settings=f'[archive]\nplace = "{tmp_path}/archive"\n')
    one.start()
    assert one.wait_end(120) == 0
    journal = sorted((name, os.path.getsize(one.run.path("journal", name))) for name in os.listdir(one.run.journal))
    save = "a0001-i0000008"
    code, out, err = relight("checkpoints", "archive", one.run.root, save, "--make")
    assert code == 0, err
    code, out, err = relight("drill", "archive", one.run.root, "--level", "update", "--checkpoint", save, "--json")
    assert code == 0, (out, err)
    told = json.loads(out)
    assert list(told["parts"]) == ["choose", "fetch", "read", "launch", "load", "update"]
    assert (told["ok"], told["checkpoint"]) == (True, save)
    assert journal == sorted((n, os.path.getsize(one.run.path("journal", n))) for n in os.listdir(one.run.journal))
    assert sorted(os.listdir(one.run.path("drills"))) == ["0001.json", "0001.log"]
    assert "level update" in relight("status", one.run.root)[1]

    # A command that can't go on is no way back, and the drill says so.
    settings = json.loads(open_text(one.run.path("settings.json")))
    settings["command"] = [sys.executable, "-c", "raise SystemExit(3)"]
    with open(one.run.path("settings.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    code, out, _ = relight("drill", "shared", one.run.root, "--level", "load", "--json")
    assert code == 1
    assert "rank-failed" in json.loads(out)["why"]


def open_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
