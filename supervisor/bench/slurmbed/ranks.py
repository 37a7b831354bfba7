"""The processes of a node of the test cluster: which are a rank and its shim, for the nodes number them themselves."""

from __future__ import annotations

from dataclasses import dataclass

from slurm import processes
from supervisor.bench import nodes
from supervisor.bench.slurmbed.supervised import SlurmRun


@dataclass(frozen=True, slots=True)
class RankFound:
    """A rank's process and its shim, as this machine numbers them. `forked`: it is no child of its shim."""

    pid: int
    shim: int
    forked: bool


def find(run: SlurmRun, rank: int) -> RankFound:
    """The rank of the newest attempt. Raises LookupError when it does not run."""
    attempt = run.history().attempt
    if attempt is None:
        raise LookupError("nothing is launched")
    node = attempt.slots[rank // run.shape.ranks_per_node]
    outer = {_within(pid): pid for pid in run.bed.node_pids(node)}
    try:
        pid = outer[nodes.rank_pid(run.run.root, attempt.number, rank)]
        shim = outer[nodes.shim_pid(run.run.root, attempt.number, rank)]
    except KeyError:
        raise LookupError(f"rank {rank} does not run on {node}") from None
    return RankFound(pid, shim, parent(pid) != shim)


def parent(pid: int) -> int:
    """Its parent, as this machine numbers them. Raises LookupError when it is gone."""
    seen = processes.look(pid)
    if seen is None:
        raise LookupError(f"process {pid} has just ended")
    return seen.parent


def words(pid: int) -> list[str]:
    """Its command line; nothing when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def _within(pid: int) -> int:
    """Its number in the innermost namespace that it is in; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[-1]) for line in file if line.startswith("NSpid:")), 0)
    except OSError:
        return 0
