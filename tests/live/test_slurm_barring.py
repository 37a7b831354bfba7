"""A lost node on a real Slurm: drained with our key where the user may, else barred in this run alone, which is told once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch")
from policies.history import History
from supervisor.bench.slurmbed import cases, install, strikes
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape
from supervisor.bench.slurmbed.supervised import SlurmRun
from supervisor.journal import journal
from supervisor.journal.entries import DrainRefused, Told
from supervisor.telling.notices import NOT_DRAINED

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("slurm")]

NOBODY = 65534
LONG = replace(cases.SHAPE, steps=64)


@pytest.fixture
def bed() -> Iterator[SlurmBed]:
    """Six nodes on two leaf switches, n001, n003 and n005 on the one: slots go by name, so each leaf has a spare."""
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    with SlurmBed(Shape(nodes=cases.NODES, switches=3)) as one:
        yield one


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="relight-barring-", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o755)  # noqa: S103 - the daemons of the nodes are other users
        yield path


def drain_of(bed: SlurmBed, node: str) -> tuple[bool, str]:
    """(drained?, reason) as Slurm has it."""
    state, reason = bed.run("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:|,Reason:|").strip().split("|")[:2]
    return "drain" in state, reason.strip()


def moved(history: History) -> list[tuple[int, str, str]]:
    return [swap for incident in history.incidents for swap in incident.swaps]


def test_with_the_right_a_lost_node_is_drained_with_our_key_and_a_spare_of_its_leaf_takes_the_slot(
    bed: SlurmBed, folder: str, calm: str
) -> None:
    run = SlurmRun(bed, folder, cases.SHAPE)
    run.submit()
    run.wait_step(strikes.STRUCK)
    bed.crash_node("n002")
    run.wait_over()
    history = run.history()
    assert history.ended == "finished"
    assert moved(history) == [(1, "n002", "n006")]
    assert drain_of(bed, "n002") == (True, "relight demo incident 1")
    assert not any(drain_of(bed, name)[0] for name in bed.names if name != "n002")
    assert history.drain_refused == ""
    assert run.weights_hash() == calm
    entries = [one.entry for one in journal.read(run.run.journal)]
    asked = [one for one in entries if one.kind == "intended" and one.action.kind == "check"]
    assert {one.action.node for one in asked} >= {"n006"}  # it has looked at itself before it took the slot


def test_without_the_right_the_run_goes_on_and_that_is_told_once_though_the_controller_dies(
    bed: SlurmBed, folder: str
) -> None:
    run = SlurmRun(bed, folder, LONG, env=bed.as_user(NOBODY, ("scontrol",)))
    run.submit()
    run.wait_step(strikes.STRUCK)
    bed.crash_node("n002")
    run.wait_closed(1)
    strikes.controller_killed(run)
    run.until(lambda: run.history().epoch >= 2, "the next controller", 60)
    run.wait_step(run.history().incidents[0].frontier + 2)
    bed.crash_node("n003")
    run.wait_over()
    history = run.history()
    assert history.ended == "finished"
    assert moved(history) == [(1, "n002", "n006"), (2, "n003", "n005")]
    assert history.barred(2e10) == {"n002", "n003"}
    assert not any(drain_of(bed, name)[0] for name in bed.names)
    entries = [one.entry for one in journal.read(run.run.journal)]
    (refused,) = [one for one in entries if isinstance(one, DrainRefused)]
    assert "scontrol update" in refused.why
    assert [one.key for one in entries if isinstance(one, Told) and "drain" in one.key] == [NOT_DRAINED]
    told = run.relight("status", run.run.root)
    assert "Not drained, barred in this run alone: n002, n003." in told
    assert refused.why.rstrip(".") in told


@pytest.mark.skipif(not os.environ.get("RELIGHT_ALL_POINTS"), reason="80 s more: set RELIGHT_ALL_POINTS=1")
def test_a_person_lifts_the_bar_of_a_repaired_node_and_the_next_job_has_it_as_a_spare(
    bed: SlurmBed, folder: str
) -> None:
    run = SlurmRun(bed, folder, replace(cases.SHAPE, steps=2000))
    run.submit()
    run.wait_step(strikes.STRUCK)
    bed.crash_node("n002")
    run.wait_closed(1)
    run.until(lambda: drain_of(bed, "n002") == (True, "relight demo incident 1"), "our drain", 30)
    run.until(lambda: "n002" not in bed.job_nodes(run.at), "the job without the node", 60)
    bed.revive_node("n002")
    said = run.relight("unbar", run.run.root, "n002", "--because", "board replaced")
    assert "bar lifted: n002" in said
    assert "Not yet: n002 (" in said
    run.until(lambda: not drain_of(bed, "n002")[0], "our drain lifted", 60)
    # Slurm brings no node back that went down while it was drained: whoever has repaired it says so.
    bed.run("scontrol", "update", "NodeName=n002", "State=RESUME")
    run.until(lambda: bed.node_states()["n002"] == "idle", "the node up", 60)
    assert run.history().barred(2e10) == {"n002"}  # nobody has looked at it yet
    run.relight("stop", run.run.root, "--next-job")
    run.until(lambda: not run.history().barred(2e10), "the node back through its check", 120)
    history = run.history()
    (bar,) = history.bars
    assert history.job is not None
    assert history.job.follows
    assert bar.lifted_by
    assert bar.returned_at is not None
    assert bar.returned_at >= history.job.at
    run.relight("stop", run.run.root)
    run.wait_over()
    assert run.history().ended == "stopped"
    assert len(run.jobs()) == 2
