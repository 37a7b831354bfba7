"""The run directory and the store are lost, with everybody who worked there: the run goes on from its archive alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
from supervisor.bench.proofs.runs import SMALL, ledger_holds, running, with_extra
from supervisor.bench.proofs.work import Work

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real-loop")]
SHAPE = replace(with_extra(SMALL, "--step-seconds", "0.3"), steps=40, save_every=20)
SAVE = "a0001-i0000020"


def test_nothing_is_left_but_the_archive(tmp_path: Path) -> None:
    work, place = Work("live", str(tmp_path)), tmp_path / "elsewhere"
    with running(work, "lost", SHAPE, settings=f'[archive]\nplace = "{place}"\n') as run:
        run.wait_for("a copy in the archive", lambda: run.history().archived)
        run.wait_step(22)
        run.stop()
        shutil.rmtree(run.run.root)
        words = ["checkpoints", "recover", str(place), "bench", "--run-dir", run.run.root]
        done = subprocess.run([sys.executable, "-m", "supervisor", *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"newest {SAVE}" in done.stdout
        run.start()
        assert run.wait_end(180) == 0
        history = run.history()
        assert history.epoch == 2
        assert [c.id for c in history.restored] == [SAVE]
        assert history.attempts[-1].checkpoint == SAVE
        assert ledger_holds(history, SHAPE.steps)
        assert len(run.weights_hash()) > 8
