"""A run's directory with saves in its store, for the commands that look into it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import Scene, training
from test_store_good import new_store, write_save

from supervisor.cli import main
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import Settings, freeze


def a_run(root: Path, scene: Scene | None = None, **settings) -> RunDir:
    """A run of four ranks (TP2 x PP2), below `relight-runs/`, as its controller left it."""
    runs = root / "relight-runs"
    runs.mkdir(exist_ok=True)
    run = RunDir(str(runs / "demo"))
    run.create()
    given = {"run": {"name": "demo"}, "layout": {"tp": 2, "pp": 2}, **settings}
    freeze(run.root, Settings.model_validate(given))
    scene = scene or training(save_at=0)
    journal, _ = Journal.begin(run.journal, lambda: scene.stamped[0].at, "h", 1)
    for one in scene.stamped[1:]:
        journal.append([one.entry], one.at)
    journal.close()
    return run


def sealed(run: RunDir, *steps: int, attempt: int = 1):
    """The run's store, with these saves completed."""
    store = new_store(run.path("checkpoints"))
    for step in steps:
        write_save(store, attempt, step)
        store.seal(f"a{attempt:04d}-i{step:07d}")
    return store


@pytest.fixture
def relight(monkeypatch, capsys, tmp_path):
    """Call the command line in process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TZ", "UTC")

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["relight", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call
