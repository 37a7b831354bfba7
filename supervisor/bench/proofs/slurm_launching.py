"""How steps are launched on a real Slurm: ranks forked warm, one task a node below torchrun, ends that only srun tells of.

Each run is struck once and ends with the bits of an undisturbed one.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from slurm import localfiles, processes, sockets
from slurm.cluster import LaunchSpec
from supervisor import launchers
from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.bench.real_run import Shape
from supervisor.bench.slurmbed import install, ranks
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape as BedShape
from supervisor.bench.slurmbed.supervised import SlurmRun, new_folder

SHAPE = Shape(
    tp=1, pp=2, dp=2, ranks_per_node=2, spares=1, steps=48, save_every=8, asynchronous=True,
    extra=("--step-seconds", "0.1"),
)  # fmt: skip
NODES = SHAPE.world // SHAPE.ranks_per_node + SHAPE.spares
STRUCK = 11
"""The step at which a fault is done: between two saves."""
VICTIM = 3


def warm(work: Work, bed: SlurmBed, calm: str) -> None:
    """Every rank of the next attempt is a fork of its node's warm process, and a stop leaves none of them."""

    def strike(run: SlurmRun) -> None:
        folder = sockets.socket_dir(run.run.root)
        run.until(
            lambda: all(os.path.exists(sockets.warm_socket(folder, node)) for node in run.slots()), "warm processes", 60
        )
        os.kill(ranks.find(run, VICTIM).pid, signal.SIGKILL)
        run.until(lambda: len(run.history().attempts) > 1, "the next attempt", 60)
        run.wait_step(STRUCK)
        found = [ranks.find(run, rank) for rank in range(run.shape.world)]
        work.check("warm: every rank of the next attempt is forked", ok=all(one.forked for one in found))

    survive(work, SlurmRun(bed, new_folder(), replace(SHAPE, warm=True)), "warm", strike, calm)


def torchrun(work: Work, bed: SlurmBed, calm: str) -> None:
    """The user's command is torchrun: one task a node starts it, and each rank has its shim below it."""

    def strike(run: SlurmRun) -> None:
        hosts = {step.hosts for step in _attempts(run)}
        work.check("torchrun: one task a node", ok=hosts == {run.slots()})
        found = [ranks.find(run, rank) for rank in range(run.shape.world)]
        above = [ranks.words(ranks.parent(one.shim)) for one in found]
        work.check("torchrun: every shim is torchrun's child", ok=all(launchers.MODULE in words for words in above))
        os.kill(found[VICTIM].pid, signal.SIGKILL)

    command = (sys.executable, "-m", launchers.MODULE, "--nproc-per-node", str(SHAPE.ranks_per_node))
    survive(work, SlurmRun(bed, new_folder(), SHAPE, launcher=command), "torchrun", strike, calm)


def srun_words(work: Work, bed: SlurmBed, calm: str) -> None:
    """A shim is killed together with its rank, so nothing of ours tells how they ended; srun does."""

    def strike(run: SlurmRun) -> None:
        victim = ranks.find(run, VICTIM)
        before = time.time()
        processes.send([victim.shim, victim.pid], signal.SIGKILL)
        seen = run.wait_closed(1).times.confirmed
        work.measured["words: killed to confirmed, s"] = round(seen - before, 2) if seen else None
        record = run.run.attempt(1, "exit", f"rank_{VICTIM:05d}.json")
        work.check("words: there is no record", ok=not os.path.exists(record))

    survive(work, SlurmRun(bed, new_folder(), SHAPE), "words", strike, calm)


def survive(work: Work, run: SlurmRun, name: str, strike: Callable[[SlurmRun], None], calm: str) -> None:
    """One run that is struck once: one incident, no slot moved, the same bits."""
    try:
        run.submit()
        run.wait_step(STRUCK)
        before = run.slots()
        strike(run)
        end = run.wait_over()
        history = run.history()
        work.check(f"{name}: the run has finished ({end})", ok=history.ended == "finished")
        state = run.wait_job()
        work.check(f"{name}: its job is {state}", ok=state == "COMPLETED")
        first = {one.rank for i in history.incidents if i.diagnosis for one in i.diagnosis.first}
        work.check(
            f"{name}: one incident, and its earliest error is that of rank {VICTIM}",
            ok=len(history.incidents) == 1 and first == {VICTIM},
        )
        work.check(f"{name}: every slot stays", ok=run.slots() == before)
        work.check(f"{name}: the same bits", ok=run.weights_hash() == calm)
    finally:
        run.bed.run("scancel", run.job, check=False)
    if work.ok:
        shutil.rmtree(run.folder, ignore_errors=True)


CASES = {"warm": warm, "torchrun": torchrun, "words": srun_words}


def prove(work: Work) -> None:
    """Every case, each on a cluster of its own."""
    why = install.ensure()
    if why is not None:
        raise SkippedError(why)
    calm = undisturbed(work, replace(SHAPE, spares=0))
    for case in CASES.values():
        with SlurmBed(BedShape(nodes=NODES)) as bed:
            case(work, bed, calm)


def _attempts(run: SlurmRun) -> list[LaunchSpec]:
    """The orders of all attempts."""
    names = sorted(os.listdir(run.run.path("nodes", "orders")))
    orders = (
        localfiles.read_order(run.run.root, name.removesuffix(".json")) for name in names if name.endswith(".json")
    )
    return [order for order in orders if order.name.startswith("demo.a0")]
