"""Faults that a person injects into a run of the reference trainer: filed, found, claimed once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from builders import training
from click.testing import CliRunner

from supervisor.bench.trainer import injected
from supervisor.bench.trainer.injected import KINDS, Inbox, claim
from supervisor.bench.trainer.options import Fail
from supervisor.commands import bench_inject
from supervisor.commands.bench import command as bench
from supervisor.errors import UserError
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import LayoutSettings, Settings, freeze
from supervisor.telling.status import status_json

TRAINER = ("python", "-u", "-m", "supervisor.bench.trainer", "--dp", "4")


def old(folder: Path) -> None:
    """As if nothing had changed in it for a minute."""
    os.utime(folder, (time.time() - 60,) * 2)


def test_what_was_injected_is_found_once(tmp_path: Path) -> None:
    inbox = Inbox(str(tmp_path))
    assert inbox.fresh() == []
    name = injected.file(str(tmp_path), "hang", 7, 2, 1764513622.0)
    path = str(tmp_path / "inject" / name)
    assert inbox.fresh() == [Fail("hang", 7, 2, path)]
    assert inbox.fresh() == []
    injected.file(str(tmp_path), "nan", 9, 0, 1764513623.0)
    assert [f.kind for f in inbox.fresh()] == ["nan"]
    assert [f.kind for f in Inbox(str(tmp_path)).fresh()] == ["hang", "nan"]  # the ranks of the next attempt


def test_it_fires_once_over_all_attempts(tmp_path: Path) -> None:
    injected.file(str(tmp_path), "exit3", 7, 2, 1764513622.0)
    (fail,) = Inbox(str(tmp_path)).fresh()
    assert claim(fail)
    assert not claim(fail)
    assert Inbox(str(tmp_path)).fresh() == []


def test_a_folder_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    """A file that the folder's time does not tell of (planted: the time is put back) is not seen: so no read was made."""
    folder = tmp_path / "inject"
    folder.mkdir()
    old(folder)
    stamp = folder.stat().st_mtime_ns
    inbox = Inbox(str(tmp_path))
    assert inbox.fresh() == []
    injected.file(str(tmp_path), "nan", 9, 0, 1764513623.0)
    os.utime(folder, ns=(stamp, stamp))
    assert inbox.fresh() == []
    os.utime(folder)
    assert len(inbox.fresh()) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[" * 4000,
        b"[]",
        b"{}",
        b'{"kind":"rm","step":1,"rank":0}',
        b'{"kind":"nan","step":"1","rank":0}',
        b'{"kind":"nan","step":1,"rank":true}',
        b'{"kind":[],"step":1,"rank":0}',
    ],
)
def test_what_makes_no_sense_is_left_alone(tmp_path: Path, raw: bytes) -> None:
    folder = tmp_path / "inject"
    folder.mkdir()
    (folder / "x.json").write_bytes(raw)
    (folder / "notes.txt").write_text("mine")
    (folder / "d.json").mkdir()
    assert Inbox(str(tmp_path)).fresh() == []


def test_outside_relight_there_is_no_inbox() -> None:
    assert Inbox("").fresh() == []


def test_the_command_and_the_trainer_know_the_same_kinds() -> None:
    assert bench_inject.KINDS == KINDS


def a_run(tmp_path: Path, argv: tuple[str, ...], *, status: bool = True) -> RunDir:
    """A run of four ranks at step 45, its controller gone."""
    run = RunDir(str(tmp_path / "demo"))
    run.create()
    freeze(run.root, Settings(command=argv, layout=LayoutSettings(dp=4)))
    scene = training()
    journal, _ = Journal.begin(run.journal, time.time, "host", 1)
    for one in scene.stamped[1:]:
        journal.append([one.entry], one.at)
    journal.close()
    if status:
        told = status_json(scene.view, scene.last.decision, None, scene.now)  # type: ignore[union-attr]
        Path(run.path("status.json")).write_text(json.dumps(told))
    return run


def inject(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(bench, ["inject", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.output


@pytest.mark.parametrize("argv", [TRAINER, ("python", "/x/supervisor/bench/trainer/__main__.py")])
def test_a_fault_for_a_step_to_come_is_filed(tmp_path: Path, argv: tuple[str, ...]) -> None:
    run = a_run(tmp_path, argv)
    code, text = inject("sigkill", "--at", "47", "--rank", "3", run.root)
    assert code == 0
    assert text.startswith("sigkill at step 47 on rank 3: inject/")
    (fail,) = Inbox(run.root).fresh()
    assert (fail.kind, fail.step, fail.rank) == ("sigkill", 47, 3)


@pytest.mark.parametrize(
    ("argv", "step", "rank", "said", "code"),
    [
        (("python", "train.py", "supervisor.bench.trainer"), "90", "0", "not the reference trainer", 4),
        (TRAINER, "90", "4", "ranks 0 to 3", 2),
        (TRAINER, "46", "0", "step 45 is done", 4),
    ],
)
def test_what_is_refused(tmp_path: Path, argv: tuple[str, ...], step: str, rank: str, said: str, code: int) -> None:
    run = a_run(tmp_path, argv)
    with pytest.raises(UserError, match=said) as caught:
        inject("nan", "--at", step, "--rank", rank, run.root)
    assert caught.value.exit_code == code
    assert Inbox(run.root).fresh() == []


def test_before_anything_is_known_of_it_any_step_will_do(tmp_path: Path) -> None:
    run = a_run(tmp_path, TRAINER, status=False)
    assert inject("nan", "--at", "1", "--rank", "0", run.root)[0] == 0
