"""A real run on a local cluster: while it trains the idle spare reads what is sealed, in an incident whoever has survived."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
from supervisor.bench import nodes
from supervisor.bench.proofs.runs import SMALL, running, with_extra
from supervisor.bench.proofs.work import Work
from supervisor.commands.interval import measured

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real-loop")]
SHAPE = with_extra(SMALL, "--step-seconds", "0.4")
"""It still trains when its first save has been sealed, though all that the machine has is in use."""


def test_saves_are_read_by_the_agents_of_nodes_that_have_nothing_else_to_do(tmp_path: Path) -> None:
    work = Work("live", str(tmp_path))
    with running(work, "read", SHAPE, settings="[checkpoints]\nspread_mb = 0\nread_mb_s = 500\n") as run:
        run.wait_for("a completed save", lambda: os.path.exists(run.run.path("checkpoints", "latest")) or None)
        slots, spare = set(run.slots(1)), "n002"
        assert spare not in slots
        os.kill(nodes.rank_pid(run.run.root, 1, 1), signal.SIGKILL)
        assert run.wait_end(180) == 0
        assert [incident.closed for incident in run.history().incidents] == [True]
        costs = run.history().save_costs
        assert "the ranks of a node hold up to" in measured(run.run.root).text
        log = Path(run.folder, "relight.log").read_text()
    sealed = set(re.findall(r"GB by ([^']*?), in [0-9.]+ s", log))
    assert spare in sealed, log
    assert any(set(said.split(", ")) & slots for said in sealed), log  # the view of the second attempt
    assert "is not believed" not in log
    # They were written in the background, and followed to their end: the memory of the two ranks with torch is seen.
    followed = [cost for cost in costs if cost.written_s is not None and cost.host_peak_bytes is not None]
    assert followed, costs
    assert all(cost.host_peak_bytes > 100 << 20 for cost in followed), costs
