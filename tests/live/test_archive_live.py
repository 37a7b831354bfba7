"""A real run on a local cluster loses its whole store: what the archive holds comes back, is proved, and the run ends well."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
from supervisor.bench import nodes
from supervisor.bench.proofs.runs import SMALL, ledger_holds, running, with_extra
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun
from supervisor.telling.status import read_status

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real-loop")]
SHAPE = replace(with_extra(SMALL, "--step-seconds", "0.3"), steps=40, save_every=20)
SAVE = "a0001-i0000020"


def lose_store(run: RealRun) -> None:
    """Its folders are there, and empty."""
    store = run.run.path("checkpoints")
    for name in os.listdir(store):
        shutil.rmtree(os.path.join(store, name), ignore_errors=True)
    for name in ("saves", "seals", "deleted", "views", "pins", "restored"):
        os.makedirs(os.path.join(store, name), mode=0o700, exist_ok=True)


def test_a_lost_store_comes_back_from_the_archive_though_the_controller_dies_meanwhile(tmp_path: Path) -> None:
    work, place = Work("live", str(tmp_path)), tmp_path / "elsewhere"
    settings = f'[archive]\nplace = "{place}"\n'
    with running(work, "lost", SHAPE, settings=settings, crash=("after", "restore", 1)) as run:
        run.wait_for("a copy in the archive", lambda: run.history().archived)
        run.wait_step(22)
        lose_store(run)
        os.kill(nodes.rank_pid(run.run.root, 1, 1), signal.SIGKILL)
        assert run.wait_end(180) == 0
        history = run.history()
        assert [c.id for c in history.restored] == [SAVE]
        assert history.attempts[1].checkpoint == SAVE
        (incident,) = history.incidents
        assert incident.closed
        assert incident.replay is not None
        assert (incident.replay.differing, incident.replay.data_differing) == (0, None)
        assert ledger_holds(history, SHAPE.steps)
        assert history.epoch == 2
        status = read_status(run.run)
        assert status is not None
        assert f"restoring {SAVE} from the archive" in [
            what for what, done, total in status.view.moved if done == total
        ]
    assert list(place.rglob(f"*{SAVE}*"))
