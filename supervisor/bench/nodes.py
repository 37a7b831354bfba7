"""What can happen to the nodes of a local cluster: they are lost, they freeze, they thaw, they come back.

For tests and demonstrations. Processes are found by the session of their node and touched by pid.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from slurm import localfiles, processes
from slurm.local import LocalCluster
from slurm.localfiles import NodeFile

_DEADLINE_S = 10.0


def kill_node(run_dir: str, name: str) -> None:
    """SIGKILL everything on the node and see it gone. Raises LookupError for no such node, TimeoutError."""
    file = _file(run_dir, name)
    if not processes.end_node(file.pid, file.start_ticks, name, os.path.abspath(run_dir), _DEADLINE_S):
        raise TimeoutError(f"{name}: something did not end within {_DEADLINE_S} s")


def freeze_node(run_dir: str, name: str) -> None:
    """SIGSTOP everything on the node; done when all of it has been seen stopped."""
    _signal_until(run_dir, name, signal.SIGSTOP, stopped=True)


def thaw_node(run_dir: str, name: str) -> None:
    """SIGCONT everything on the node; done when none of it is stopped any more."""
    _signal_until(run_dir, name, signal.SIGCONT, stopped=False)


def revive_node(run_dir: str, name: str, python: str = sys.executable) -> None:
    """Start the node again after it was lost; what it ran before does not come back. Raises BootFailed."""
    LocalCluster(run_dir, (name,), python).boot(revive=True)


def rank_pid(run_dir: str, attempt: int, rank: int) -> int:
    """The pid of a rank's own process, as its shim wrote it. Raises LookupError when it has not been started."""
    return _pids(run_dir, attempt, rank)["pid"]


def shim_pid(run_dir: str, attempt: int, rank: int) -> int:
    """The pid of a rank's shim. Raises LookupError when it has not been started."""
    return _pids(run_dir, attempt, rank)["shim_pid"]


def _pids(run_dir: str, attempt: int, rank: int) -> dict[str, int]:
    path = Path(run_dir, f"attempts/{attempt:04d}/pids/rank_{rank:05d}.json")
    try:
        found: dict[str, int] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LookupError(f"rank {rank} of attempt {attempt} has not been started") from None
    return found


def _file(run_dir: str, name: str) -> NodeFile:
    file = localfiles.read_node(os.path.abspath(run_dir), name)
    if file is None:
        raise LookupError(f"{name}: no such node in {run_dir}")
    return file


def _signal_until(run_dir: str, name: str, number: signal.Signals, *, stopped: bool) -> None:
    file = _file(run_dir, name)
    while True:
        pids = processes.of_node(file.pid, file.start_ticks, name, os.path.abspath(run_dir))
        found = [process for process in map(processes.look, pids) if process is not None]
        # Again until it is so everywhere: a process may have forked between the look and the signal.
        todo = [process.pid for process in found if (process.state == "T") != stopped]
        if not todo:
            return
        processes.send(todo, number)
        os.sched_yield()
