"""The reference trainer on a real Slurm: submitted with `relight sbatch`, hurt in every way that a node, slurmctld or a job can be.

Each run ends with the bits of an undisturbed one, and where the allocation stays every slot but the swapped one is on its
old node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace

from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.bench.real_run import Shape
from supervisor.bench.slurmbed import install, job_strikes, strikes
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape as BedShape
from supervisor.bench.slurmbed.supervised import SlurmRun, new_folder
from supervisor.errors import HALTED_EXIT

SHAPE = Shape(
    tp=1, pp=2, dp=2, ranks_per_node=1, spares=2, steps=48, save_every=8, asynchronous=True,
    extra=("--step-seconds", "0.1"),
)  # fmt: skip
SLOW = replace(SHAPE, spares=1, extra=("--step-seconds", "1.2"))
"""About a minute of training, the least that a time limit can be."""
NODES = SHAPE.world + SHAPE.spares
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Case:
    """One run that is struck. `incidents`: how many it may be. `swapped`: how many slots are given to spares; None: other nodes.

    `rules`: lines of a profile over `bench`. `outside`: another controller stands by. `rights`: those of an operator.
    `jobs`: so many it takes at least. A run that does not finish is over with the job in this `state`, halted for `reason`.
    """

    strike: Callable[[SlurmRun], None]
    incidents: tuple[int, ...] = (1,)
    swapped: int | None = 0
    shape: Shape = SHAPE
    nodes: int = NODES
    options: tuple[str, ...] = ()
    rules: str = ""
    outside: bool = False
    rights: bool = True
    jobs: int = 1
    finishes: bool = True
    state: str = ""
    reason: str = ""


_ASKS = 'mode = "approve"\n'
_ENDS = "[job]\nleave_s = 25\ndown_s = 10\n"
CASES: dict[str, Case] = {
    "rank killed": Case(strikes.rank_killed),
    "node crash": Case(strikes.node_crash, swapped=1),
    "node hang": Case(strikes.node_hang, swapped=1),
    # Its tasks go on, and may reach the end before anything is missed of them.
    "stepd killed": Case(strikes.stepd_killed, (0, 1)),
    # Two nodes are lost one after the other: by then the first loss may have been answered.
    "two nodes": Case(strikes.two_nodes, (1, 2), 2),
    "dead spare": Case(strikes.dead_spare, (1, 2), 1),
    "same node twice": Case(strikes.same_node_twice, (2,), 1),
    "controller killed": Case(strikes.controller_killed, (0,)),
    "controllers killed in training": Case(strikes.controllers_killed_training, (0,)),
    "controllers killed in a recovery": Case(strikes.controllers_killed_recovering),
    "slurmctld away": Case(strikes.slurmctld_away),
    "slurmctld away for a minute in a recovery": Case(strikes.slurmctld_away_long),
    "slurmctld away for a minute in training": Case(
        strikes.slurmctld_away_training, (0,), shape=replace(SHAPE, steps=80, extra=("--step-seconds", "1.0"))
    ),
    "slurmctld restarted": Case(strikes.slurmctld_restarted),
    "batch host": Case(strikes.batch_host, swapped=1, outside=True),
    "batch host, requeued": Case(job_strikes.batch_host_requeued, (0, 1), None, nodes=NODES + 1),
    "time limit": Case(job_strikes.time_limit, (0,), None, SLOW, options=("--time=1",), rules=_ENDS, jobs=3),
    "node drained": Case(job_strikes.node_drained, (0,), 1),
    "refill": Case(job_strikes.spares_spent, (1,), None, replace(SHAPE, spares=1), rules="[spares]\nlow = 1\n", jobs=2),
    "no spare left": Case(job_strikes.no_spare_left, (2,), None, replace(SHAPE, spares=1), nodes=NODES + 1, jobs=2),
    "requeued": Case(job_strikes.requeued, (0,), None),
    "next job asked for": Case(job_strikes.stop_for_next, (0,), None, jobs=2),
    "stop after a save": Case(job_strikes.stop_after_save, (0,), None, jobs=2),
    "node crash, approved": Case(job_strikes.crash_approved, swapped=1, rules=_ASKS),
    "time limit, not approved": Case(
        job_strikes.time_limit,
        (0,),
        shape=SLOW,
        options=("--time=1",),
        rules=_ASKS + _ENDS,
        finishes=False,
        state="COMPLETED",
    ),
    "node crash, without rights": Case(strikes.node_crash, swapped=1, rights=False),
    "refill, without rights": Case(
        job_strikes.spares_spent,
        (1,),
        None,
        replace(SHAPE, spares=1),
        nodes=NODES + 1,
        rules="[spares]\nlow = 1\n",
        rights=False,
        jobs=2,
    ),
    "cancelled": Case(job_strikes.cancelled, (0,), finishes=False, state="CANCELLED"),
    "same data twice": Case(
        job_strikes.time_limit,
        (2,),
        shape=replace(SHAPE, extra=(*SHAPE.extra, "--fail", "nan@20:3")),
        finishes=False,
        state="FAILED",
        reason="same-data",
    ),
}


def prove(work: Work) -> None:
    """Every case, each on a cluster of its own."""
    why = install.ensure()
    if why is not None:
        raise SkippedError(why)
    calm = {shape: undisturbed(work, replace(shape, spares=0)) for shape in _shapes()}
    work.measured["undisturbed"] = sorted(set(calm.values()))
    for name, case in CASES.items():
        with SlurmBed(BedShape(nodes=case.nodes)) as bed:
            survive(work, bed, name, calm.get(_calm(case), ""))


def _calm(case: Case) -> Shape:
    """What gives the same bits: how long a step takes and how many spares there are changes none."""
    return replace(case.shape, spares=0, extra=SHAPE.extra)


def _shapes() -> set[Shape]:
    return {_calm(case) for case in CASES.values() if case.finishes}


def survive(work: Work, bed: SlurmBed, name: str, calm: str) -> None:
    """One run on `bed`, struck as the case says."""
    case = CASES[name]
    folder = new_folder()
    env = bed.env if case.rights else bed.as_user(NOBODY, ("scontrol",))
    run = SlurmRun(bed, folder, replace(case.shape, profile=_profile(folder, case.rules)), env, options=case.options)
    outside = None
    try:
        run.submit()
        run.wait_step(strikes.STRUCK)
        outside = run.watch() if case.outside else None
        before = run.slots()
        case.strike(run)
        end = run.wait_over(360)
        _judge(work, run, name, end, before, calm)
    finally:
        _end(run, outside)
    shutil.rmtree(folder, ignore_errors=True)


def _judge(work: Work, run: SlurmRun, name: str, end: str, before: tuple[str, ...], calm: str) -> None:
    case, history = CASES[name], run.history()
    halted = history.halted.reason.value if history.halted else ""
    if case.finishes:
        how = end if history.ended == "finished" else f"{end}, {halted or history.ended}: {run.last_words()}"
        work.check(f"{name}: the run has finished ({how})", ok=history.ended == "finished")
    else:
        work.check(f"{name}: the job is over and nothing is started again ({end})", ok=end == case.state)
        work.check(f"{name}: halted is {case.reason or 'nothing'}", ok=halted == case.reason)
        code = run.bed.exit_code(run.at)
        work.check(f"{name}: the job's exit code is {code}", ok=(code == HALTED_EXIT) is bool(case.reason))
    wanted = " or ".join(map(str, case.incidents))
    work.check(f"{name}: {wanted} incidents", ok=len(history.incidents) in case.incidents)
    if case.swapped is not None:
        moved = sum(a != b for a, b in zip(before, run.slots(), strict=True))
        work.check(f"{name}: {case.swapped} slots are given to spares, all others stay", ok=moved == case.swapped)
    jobs = run.jobs()
    work.check(f"{name}: it took {case.jobs} jobs at least", ok=len(jobs) >= case.jobs)
    if case.finishes:
        work.check(f"{name}: the same bits", ok=run.weights_hash() == calm)
    else:
        work.check(f"{name}: no job follows", ok=len(jobs) == case.jobs)
    for one in history.incidents:
        times = one.times
        if times.next_good is not None and times.confirmed is not None:
            work.measured[f"{name}: confirmed to next good, s"] = round(times.next_good - times.confirmed, 2)


def _profile(folder: str, rules: str) -> str:
    if not rules:
        return SHAPE.profile
    path = os.path.join(folder, "profile.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'extends = "{SHAPE.profile}"\n{rules}')
    return path


def _end(run: SlurmRun, outside: subprocess.Popen[bytes] | None) -> None:
    if outside is not None:
        outside.kill()
        outside.wait()
    for job in run.jobs():
        run.bed.run("scancel", job, check=False)
