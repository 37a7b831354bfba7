"""The reference trainer on a real Slurm: submitted with `relight sbatch`, hurt in every way that a node or slurmctld can be.

Each run ends with the bits of an undisturbed one, and every slot but the swapped one is on its old node.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

from slurm import processes
from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.bench.real_run import Shape
from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape as BedShape
from supervisor.bench.slurmbed.supervised import SlurmRun

SHAPE = Shape(
    tp=1, pp=2, dp=2, ranks_per_node=1, spares=2, steps=48, save_every=8, asynchronous=True,
    extra=("--step-seconds", "0.1"),
)  # fmt: skip
NODES = SHAPE.world + SHAPE.spares
STRUCK = 11
"""The step at which a fault is done: between two saves."""
AWAY_S = 10.0


def rank_killed(run: SlurmRun) -> None:
    """One rank is killed; its node is well."""
    _kill_rank(run, 2)


def node_crash(run: SlurmRun) -> None:
    """A node loses power: slurmd, slurmstepd and every task are gone at once."""
    run.bed.crash_node(run.slots()[2])


def node_hang(run: SlurmRun) -> None:
    """A node stands still, and goes on when its slot has long been given away."""
    node = run.slots()[2]
    run.bed.hang_node(node)
    run.wait_closed(1)
    run.bed.revive_node(node)


def two_nodes(run: SlurmRun) -> None:
    """Two nodes at once."""
    for node in (run.slots()[1], run.slots()[3]):
        run.bed.crash_node(node)


def dead_spare(run: SlurmRun) -> None:
    """The spare that would be taken is lost in the same moment."""
    spare = min(set(run.bed.job_nodes(run.job)) - set(run.slots()))
    run.bed.crash_node(spare)
    run.bed.crash_node(run.slots()[2])


def controller_killed(run: SlurmRun) -> None:
    """SIGKILL of the controller in the job; its parent starts the next one."""
    for pid in run.bed.node_pids(run.slots()[0]):
        if b"--epoch-only" in _words(pid):
            os.kill(pid, signal.SIGKILL)


def slurmctld_away(run: SlurmRun) -> None:
    """Slurmctld is away for a while, and a rank dies meanwhile."""
    run.bed.stop_controller()
    _kill_rank(run, 1)
    run.until(lambda: bool(run.history().incidents), "an incident", 60)
    time.sleep(AWAY_S)  # how long it is away is the fault itself
    run.bed.start_controller()


def batch_host(run: SlurmRun) -> None:
    """The batch host is lost with the controller on it; another one stands by outside."""
    run.bed.crash_node(run.slots()[0])


Strike = Callable[[SlurmRun], None]
CASES: dict[str, tuple[Strike, tuple[int, ...], int]] = {
    "rank killed": (rank_killed, (1,), 0),
    "node crash": (node_crash, (1,), 1),
    "node hang": (node_hang, (1,), 1),
    "two nodes": (two_nodes, (1, 2), 2),
    "dead spare": (dead_spare, (1, 2), 1),
    "controller killed": (controller_killed, (0,), 0),
    "slurmctld away": (slurmctld_away, (1,), 0),
    "batch host": (batch_host, (1,), 1),
}
"""Name -> the fault, how many incidents it may be, how many slots are given to spares.

Two nodes are lost one after the other: by then the first loss may have been answered.
"""


def prove(work: Work) -> None:
    """Every case, each on a cluster of its own."""
    why = install.ensure()
    if why is not None:
        raise SkippedError(why)
    calm = undisturbed(work, replace(SHAPE, spares=0))
    work.measured["undisturbed"] = calm
    for name in CASES:
        with SlurmBed(BedShape(nodes=NODES)) as bed:
            survive(work, bed, name, calm)


def survive(work: Work, bed: SlurmBed, name: str, calm: str) -> None:
    """One run on `bed` that is struck once."""
    strike, incidents, swapped = CASES[name]
    folder = tempfile.mkdtemp(prefix="relight-slurm-run-")
    os.chmod(folder, 0o755)  # noqa: S103 - the nodes' daemons are other users
    run = SlurmRun(bed, folder, SHAPE)
    outside = None
    try:
        run.submit()
        run.wait_step(STRUCK)
        outside = run.watch() if name == "batch host" else None
        before = run.slots()
        strike(run)
        end = run.wait_over()
        history = run.history()
        work.check(f"{name}: the run has finished ({end})", ok=history.ended == "finished")
        wanted = " or ".join(map(str, incidents))
        work.check(f"{name}: {wanted} incidents", ok=len(history.incidents) in incidents)
        moved = sum(a != b for a, b in zip(before, run.slots(), strict=True))
        work.check(f"{name}: {swapped} slots are given to spares, all others stay", ok=moved == swapped)
        work.check(f"{name}: the same bits", ok=run.weights_hash() == calm)
        for one in history.incidents:
            times = one.times
            if times.next_good is not None and times.confirmed is not None:
                work.measured[f"{name}: confirmed to next good, s"] = round(times.next_good - times.confirmed, 2)
    finally:
        if outside is not None:
            outside.kill()
            outside.wait()
        bed.run("scancel", run.job, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _kill_rank(run: SlurmRun, slot: int) -> None:
    """The rank of a slot with one rank a node."""
    for pid in run.bed.node_pids(run.slots()[slot]):
        words = _words(pid)
        if b"--save-every" in words and words[0].endswith(b"python") and processes.look(pid) is not None:
            os.kill(pid, signal.SIGKILL)
            return
    raise RuntimeError(f"no rank runs on {run.slots()[slot]}")


def _words(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return [b""]
