"""One supervised run on the test cluster that is struck once, and what it must have come to.

A run ends with the bits of an undisturbed one, and where the allocation stays every slot but the swapped one is on its old
node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.bench.real_run import Shape
from supervisor.bench.slurmbed import install, strikes
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape as BedShape
from supervisor.bench.slurmbed.supervised import SlurmRun, can_run, new_folder
from supervisor.errors import HALTED_EXIT

SHAPE = Shape(
    tp=1, pp=2, dp=2, ranks_per_node=1, spares=2, steps=48, save_every=8, asynchronous=True,
    extra=("--step-seconds", "0.1"),
)  # fmt: skip
SLOW = replace(SHAPE, spares=1, extra=("--step-seconds", "1.2"))
"""About a minute of training, the least that a time limit can be."""
NODES = SHAPE.world + SHAPE.spares
NOBODY: Final = 65534


@dataclass(frozen=True, slots=True)
class Case:
    """One run that is struck. `incidents`: how many it may be. `swapped`: how many slots are given to spares; None: other nodes.

    `rules`: lines of a profile over `bench`. `outside`: another controller stands by. `rights`: those of an operator; without, the
    run is another user's, or where our Python is for us alone, only `scontrol` is asked as that one.
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


def large(case: Case) -> Case:
    """The same at 8 slots, and 3 hot spares where there were 2: up to 12 nodes."""
    more = 1 if case.shape.spares == SHAPE.spares else 0
    shape = replace(case.shape, dp=2 * case.shape.dp, spares=case.shape.spares + more)
    return replace(case, shape=shape, nodes=case.nodes + case.shape.world + more)


def prove_all(work: Work, cases: Mapping[str, Case]) -> None:
    """Every case at 8 slots, each on a cluster of its own."""
    why = install.ensure()
    if why is not None:
        raise SkippedError(why)
    ours = {name: large(case) for name, case in cases.items()}
    calm = {shape: undisturbed(work, shape) for shape in {_calm(case) for case in ours.values() if case.finishes}}
    work.measured["undisturbed"] = sorted(set(calm.values()))
    for name, case in ours.items():
        with SlurmBed(BedShape(nodes=case.nodes)) as bed:
            survive(work, bed, name, case, calm.get(_calm(case), ""))


def _calm(case: Case) -> Shape:
    """What gives the same bits: how long a step takes and how many spares there are changes none."""
    return replace(case.shape, spares=0, extra=SHAPE.extra)


def survive(work: Work, bed: SlurmBed, name: str, case: Case, calm: str) -> None:
    """One run on `bed`, struck as the case says. `calm`: the hash of an undisturbed one."""
    folder = new_folder()
    uid = 0 if case.rights or not can_run(NOBODY) else NOBODY
    env = bed.env if case.rights or uid else bed.as_user(NOBODY, ("scontrol",))
    if not case.rights:
        work.measured["without rights, as uid 65534"] = "the whole run" if uid else "scontrol alone"
    shape = replace(case.shape, profile=_profile(folder, case.rules))
    run = SlurmRun(bed, folder, shape, env, options=case.options, uid=uid)
    outside = None
    try:
        run.submit()
        run.wait_step(strikes.STRUCK)
        outside = run.watch() if case.outside else None
        before = run.slots()
        case.strike(run)
        end = run.wait_over(360)
        end = end if case.finishes else run.wait_job()
        _judge(work, run, name, case, end, before, calm)
    finally:
        _end(run, outside)
    shutil.rmtree(folder, ignore_errors=True)


def _judge(work: Work, run: SlurmRun, name: str, case: Case, end: str, before: tuple[str, ...], calm: str) -> None:
    history = run.history()
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
