"""The earliest error in the loop: seven kinds of faults on the real trainer, and the right rank and node named each time.

`python -m supervisor.bench.proofs.causes KIND SEED` does one of them again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from policies.history import Incident
from supervisor.bench import nodes
from supervisor.bench.proofs.runs import running, with_extra
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun, Shape
from supervisor.errors import UserError

SHAPE = Shape(tp=1, pp=1, dp=4, ranks_per_node=1, spares=0, steps=200, save_every=50, extra=("--step-seconds", "0.1"))
"""Four ranks on four nodes: one can stand apart from a majority."""
RUNS = 20
KERNEL = "{root}/kernel-%N.log"
SETTINGS = '[health]\nkernel_log = "{log}"\n'


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: how it is done to a rank, and what must be said of it. `option`: the trainer does it to itself."""

    name: str
    category: str
    strike: Callable[[RealRun, int], None] | None = None
    option: str = ""
    suspected: bool = False


def _kill(run: RealRun, rank: int) -> None:
    os.kill(nodes.rank_pid(run.run.root, 1, rank), signal.SIGKILL)


def _stop(run: RealRun, rank: int) -> None:
    os.kill(nodes.rank_pid(run.run.root, 1, rank), signal.SIGSTOP)


def _kernel_says(run: RealRun, rank: int, *lines: str) -> int:
    """Lines in the kernel log of the rank's node; the rank's process."""
    pid = nodes.rank_pid(run.run.root, 1, rank)
    path = KERNEL.format(root=run.folder).replace("%N", run.slots(1)[rank])
    with open(path, "a", encoding="ascii") as file:
        for line in lines:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime()) + time.strftime("%z")
            file.write(f"{stamp} kernel: {line.format(pid=pid)}\n")
    return pid


def _out_of_memory(run: RealRun, rank: int) -> None:
    pid = _kernel_says(
        run,
        rank,
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Memory cgroup out of memory: Killed process {pid} (python) total-vm:98213400kB, anon-rss:96212312kB",
    )
    os.kill(pid, signal.SIGKILL)


def _off_the_bus(run: RealRun, rank: int) -> None:
    pid = _kernel_says(run, rank, "NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=python, GPU has fallen off the bus.")
    os.kill(pid, signal.SIGABRT)


KINDS = (
    Kind("sigkill", "hang.unknown", _kill),
    Kind("sigstop", "hang.unknown", _stop),
    Kind("exception", "software.user", option="exception"),
    Kind("oom-kill", "oom.host", _out_of_memory),
    Kind("nan", "numeric", option="nan"),
    Kind("hang", "software.user", option="hang"),
    Kind("xid", "hardware.gpu", _off_the_bus, suspected=True),
)


def prove(work: Work, runs: int = RUNS) -> None:
    """`runs` of each kind; rank and moment are drawn."""
    right = {kind.name: 0 for kind in KINDS}
    for number, kind in product(range(runs), KINDS):
        right[kind.name] += named(work, kind, work.seed * 1000 + number)
    work.measured |= {"runs_of_each": runs, "right": right}


def named(work: Work, kind: Kind, seed: int) -> bool:
    """One run: is the rank that was hurt the one that is named?"""
    rng = random.Random(f"{kind.name} {seed}")
    rank, step, delay_s = rng.randrange(SHAPE.world), rng.randint(3, 12), rng.uniform(0, 0.1)
    what = f"{kind.name} {seed}"
    shape = SHAPE
    if kind.option:
        fired = work.path(f"fired-{kind.name}-{seed}")
        shape = with_extra(SHAPE, "--fail", f"{kind.option}@{step}:{rank}", "--fail-once", fired)
    folder = f"{kind.name}-{seed}"
    settings = SETTINGS.format(log=KERNEL.format(root=work.path(folder)))
    try:
        with running(work, folder, replace(shape), settings=settings) as run:
            if kind.strike is not None:
                run.wait_step(step)
                time.sleep(delay_s)  # a moment inside a step, which nothing announces
                kind.strike(run, rank)
            incident = run.wait_for("the next attempt, or a halt", lambda: _judged(run), 90)
            wrong = _wrong(kind, run, rank, incident)
            return work.check(f"{what}, rank {rank} at step {step}{f': {wrong}' if wrong else ''}", ok=not wrong)
    except UserError as error:
        return work.check(f"{what}, rank {rank} at step {step}: {error}", ok=False)


def _judged(run: RealRun) -> Incident | None:
    """The first incident, once its attempt is down and all evidence is in."""
    history = run.history()
    first = history.incidents[0] if history.incidents else None
    down = bool(history.attempts) and history.attempts[0].closed_at is not None
    return first if first is not None and first.diagnosis is not None and down else None


def _wrong(kind: Kind, run: RealRun, rank: int, incident: Incident) -> str:
    """What is said that is not so; empty when all is right."""
    diagnosis, node = incident.diagnosis, run.slots(1)[rank]
    if diagnosis is None or not diagnosis.first:
        return f"nobody is named ({incident.trouble.text})"
    first = diagnosis.first[0]
    if (first.rank, first.node) != (rank, node):
        return f"rank {first.rank} on {first.node} is named: {first.text}"
    if diagnosis.category != kind.category:
        return f"{diagnosis.category}, not {kind.category}: {first.text}"
    if diagnosis.suspects != ((node,) if kind.suspected else ()):
        return f"suspects {diagnosis.suspects}"
    return _not_kept(run, incident.number)


def _not_kept(run: RealRun, number: int) -> str:
    """What of the evidence is missing: the ends of all logs, and what was to be seen."""
    try:
        with open(run.run.incident(number, "seen.json"), "rb") as file:
            seen = json.load(file)
    except (OSError, ValueError) as error:
        return f"seen.json: {error}"
    logs = len(os.listdir(run.run.incident(number, "evidence", "logs")))
    nodes_seen = len(seen["nodes"] or ())
    return "" if (logs, nodes_seen) == (SHAPE.world, SHAPE.world) else f"{logs} logs and {nodes_seen} nodes were kept"


def main(argv: list[str]) -> int:
    """One run again: KIND SEED."""
    work = Work("causes", tempfile.mkdtemp(prefix="relight-causes-"))
    kind = next(k for k in KINDS if k.name == argv[0])
    return 0 if named(work, kind, int(argv[1])) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
