"""A real run whose rank is killed: people are told through real gateways, once, whatever becomes of the controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from sinks import Sink, http_sink

from policies.history import History
from supervisor.bench import plain_script
from supervisor.errors import HALTED_EXIT
from supervisor.fold import fold_all
from supervisor.journal import journal
from supervisor.journal.lease import read_holder
from supervisor.telling.told import matter

T = TypeVar("T")
LIMIT_S = 90
SECRETS = (b"us3rname", b"passw0rd", b"t0ps3cret")


def until(look: Callable[[], T | None]) -> T:
    """Wait for a file that other processes write."""
    end = time.monotonic() + LIMIT_S
    while (found := look()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


class Run:
    """`relight run` over a script that trains nothing."""

    def __init__(self, folder: Path, good: Sink, hangs: Sink) -> None:
        self.root = folder / "run"
        (folder / "quick.toml").write_text('extends = "approve"\nhold_s = 0\n[telling]\nremind_s = 3\nescalate_s = 0\n')
        config = folder / "relight.toml"
        config.write_text(
            '[run]\nname = "told"\n[layout]\ndp = 2\n[cluster]\nspares = 1\n[notify]\nlink = "https://ops:8440"\ndeadline_s = 20\n'
            f'urls = ["{good.url()}", "{hangs.url()}"]\nheartbeat_s = 5\nheartbeat_url = "http://127.0.0.1:{good.port}/beat"\n'
        )
        config.chmod(0o600)
        argv = [
            "run",
            "--config",
            str(config),
            "--profile",
            str(folder / "quick.toml"),
            "--run-dir",
            str(self.root),
            "--",
        ]
        script = [sys.executable, plain_script.__file__, "1000", "0.2"]
        self.log = (folder / "run.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervisor", *argv, *script], stderr=self.log, cwd=folder
        )

    def history(self) -> History:
        return fold_all(History(), journal.read(str(self.root / "journal")))

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "supervisor", words[0], str(self.root), *words[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def close(self) -> None:
        """The script heeds no wish to stop, so the run is halted; its nodes are let go at once (hold_s = 0)."""
        if self.process.poll() is None:
            self.ask("halt")
        assert self.process.wait(LIMIT_S) == HALTED_EXIT
        self.log.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Run, Sink, Sink]]:
    with http_sink() as good, http_sink() as hangs:
        hangs.hangs = True
        run = Run(tmp_path, good, hangs)
        try:
            yield run, good, hangs
        finally:
            run.close()


def came(sink: Sink, titles: list[str], *, beats: list[str]) -> None:
    """Take what has come."""
    while True:
        try:
            _, path, said = sink.came.get_nowait()
        except Empty:
            return
        if said is None:
            beats.append(path)
        else:
            titles.append(said["title"])
            if "waiting for you" in said["title"]:
                assert "https://ops:8440/#run=told&plan=" in said["message"]
                assert "relight approve told --plan " in said["message"]


def _one_has_run(run: Run) -> int | None:
    """The pid of rank 1 once it has done a few steps."""
    rows = run.root / "steps" / "a0001.jsonl"
    try:
        if len(rows.read_text().splitlines()) < 3:
            return None
        return int(json.loads((run.root / "attempts/0001/pids/rank_00001.json").read_text())["pid"])
    except (OSError, ValueError):
        return None


@pytest.mark.slow
@pytest.mark.real
def test_a_killed_rank_is_told_once_and_again_and_nobody_waits_for_a_gateway(scene: tuple[Run, Sink, Sink]) -> None:
    run, good, hangs = scene
    titles: list[str] = []
    beats: list[str] = []
    os.kill(until(lambda: _one_has_run(run)), signal.SIGKILL)

    def told(text: str) -> list[str] | None:
        came(good, titles, beats=beats)
        return [t for t in titles if text in t] or None

    until(lambda: told("waiting for you"))
    until(lambda: told("still waiting"))
    # The controller dies. The next one repeats nothing that has arrived.
    holder = read_holder(str(run.root / "lease"))
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: True if run.history().epoch == 2 else None)
    reminders = len(told("still waiting") or [])
    until(lambda: True if len(told("still waiting") or []) > reminders else None)
    assert len(told("waiting for you") or []) == 1
    history = run.history()
    status = run.ask("status")
    assert "json (urls 1)" in status
    assert history.tellings[matter(history) or ""].reached == ("json (urls 1)",)
    hangs.came.get(timeout=LIMIT_S)  # the other gateway has the notice too, and does not answer
    assert "/beat" in beats
    # Yes: the next attempt starts, while that gateway still hangs.
    digest = history.decision_digest or ""
    assert "approved" in run.ask("approve", "--plan", digest)
    until(lambda: True if len(run.history().attempts) == 2 else None)
    report = run.ask("report")
    for wanted in ("Plan made", "Approved", "People told", "Notice arrived"):
        assert wanted in report
    guard = next(run.root.glob("guard-*.lock"))
    assert guard.exists()
    run.close()
    until(lambda: True if "guard-over" in (run.root / "guard.log").read_text() else None)
    assert [t for t in titles if "all well" in t or "gone" in t] == []
    leaked = [
        p
        for p in run.root.rglob("*")
        if p.is_file() and p.name != "notify.json" and any(s in p.read_bytes() for s in SECRETS)
    ]
    assert leaked == []
    assert not any(s in (run.root.parent / "run.log").read_bytes() for s in SECRETS)
