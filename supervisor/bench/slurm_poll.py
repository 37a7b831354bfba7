"""What one look at a cluster of 640 nodes costs, through Slurm's commands and through pyslurm: `bench figures --part slurm`.

Two real slurmds and a running step; 638 more nodes stand in slurm.conf and nobody starts them. A look is what
`slurm.reading` does: the job, its steps, and all 640 nodes. CPU time is ours and that of whoever tells: the commands,
or the worker that has pyslurm. That of slurmctld is not in it.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slurm import native_process
from slurm.asking import Commands
from slurm.cluster import Unreadable
from slurm.native import Native
from slurm.reading import Source
from supervisor.bench.figure import Figure
from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

NODES: Final = 640
LOOKS: Final = 20
"""In each round; commands and pyslurm take turns, so that a busy moment of the machine meets both."""
NATIVE_SHARE: Final = 1.0
"""CPU time of a look through pyslurm, at most this share of that through commands: else it is not worth its process."""


@dataclass(frozen=True, slots=True)
class Look:
    """Milliseconds of one look, each the median of its rounds."""

    cpu_ms: float
    wall_ms: float


def look(source: Source, names: tuple[str, ...]) -> None:
    """One look. Raises RuntimeError where anything can't be read: nothing would have been measured."""
    steps = source.steps()
    nodes = source.nodes(names)
    unread = [answer.why for answer in (source.job(), steps, nodes) if isinstance(answer, Unreadable)]
    if unread or isinstance(nodes, Unreadable) or len(nodes) != len(names) or not steps:
        raise RuntimeError(unread[0] if unread else "not every node, or no step, was told")


def cpu_ms(worker: int | None) -> float:
    """CPU time so far, ours and our children's; of a worker that lives still, from the kernel's own count (schedstat)."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    mine = sum(one.ru_utime + one.ru_stime for one in used) * 1e3
    if worker is None:
        return mine
    with open(f"/proc/{worker}/schedstat", encoding="ascii") as file:
        return mine + int(file.read().split()[0]) / 1e6


def timed(source: Source, names: tuple[str, ...], worker: Callable[[], int | None]) -> Look:
    """Some looks in a row."""
    cpu, began = cpu_ms(worker()), time.perf_counter()
    for _ in range(LOOKS):
        look(source, names)
    return Look((cpu_ms(worker()) - cpu) / LOOKS, (time.perf_counter() - began) * 1e3 / LOOKS)


def median(rounds: list[Look]) -> Look:
    """Of both, over the rounds."""
    return Look(statistics.median(one.cpu_ms for one in rounds), statistics.median(one.wall_ms for one in rounds))


def pyslurm_python() -> str:
    """A Python that has pyslurm: the one that RELIGHT_PYSLURM_PYTHON names, or ours; empty where there is none."""
    named = os.environ.get("RELIGHT_PYSLURM_PYTHON", "")
    return named or (sys.executable if importlib.util.find_spec("pyslurm") is not None else "")


def measure(repeats: int, say: Callable[[str], None]) -> tuple[list[Figure], list[str]]:
    """The figures, and what could not be had. Raises BedError, RuntimeError."""
    why = install.ensure()
    if why is not None:
        return [], [f"slurm: {why}"]
    say(f"looks at {NODES} nodes")
    # Nobody asks the sleeping ones how they are: with a timeout slurmctld would be busy with nothing else.
    with SlurmBed(Shape(nodes=2, asleep=NODES - 2, slurmd_timeout_s=0)) as bed:
        commands = Commands(bed.submit(2), bed.env, 20.0)
        version = bed.run("sinfo", "--version").strip()
        names = bed.shape.configured
        python = pyslurm_python()
        worker = native_process.Worker(native_process.command(python), bed.env)
        # Commands that are not there: what pyslurm does not tell must not be measured as if it had.
        native = Native(Commands(commands.number, {"PATH": "/nowhere"}, 1.0), worker, say)
        skipped, ours, theirs = [], list[Look](), list[Look]()
        try:
            if python:
                look(native, names)
            else:
                skipped.append("slurm: no pyslurm here (RELIGHT_PYSLURM_PYTHON may name a Python that has it)")
        except RuntimeError as error:
            skipped.append(f"slurm: pyslurm does not read {version}: {error}")
        try:
            for _ in range(repeats):
                theirs.append(timed(commands, names, lambda: None))
                if not skipped:
                    ours.append(timed(native, names, lambda: worker.pid))
        finally:
            native.close()
    return of_looks(version, median(theirs), median(ours) if ours else None), skipped


def of_looks(version: str, theirs: Look, ours: Look | None) -> list[Figure]:
    """The table's rows."""
    text = f"a look at {NODES} nodes of {version}"
    found = [Figure(f"{text}, CPU, by commands", theirs.cpu_ms, "ms", None, {"wall ms": theirs.wall_ms})]
    if ours is not None:
        found.append(Figure(f"{text}, CPU, by pyslurm", ours.cpu_ms, "ms", None, {"wall ms": ours.wall_ms}))
        share = ours.cpu_ms / theirs.cpu_ms
        wall = {"wall x": ours.wall_ms / theirs.wall_ms}
        found.append(Figure(f"{text}, CPU, pyslurm's share of the commands'", share, "x", NATIVE_SHARE, wall))
    return found
