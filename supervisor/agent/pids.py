"""Which processes the ranks of this node are, and which of them are left from attempts that are over.

A rank that was forked warm has none of our variables in /proc/PID/environ, so the shim's files count too; and as a pid
is used again, a file counts only for a process that is older than the file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

from slurm.processes import Process, environment, holds, look

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SLACK_S: Final = 5.0
"""Seconds by which the clock of the file system may be behind ours."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's process and its shim, as the shim has written them down at `written` (wall seconds)."""

    rank: int
    attempt: int
    pid: int
    shim_pid: int | None
    written: float


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left of older attempts. The ranks go first, so that their shims can still write how they ended."""

    ranks: frozenset[int]
    shims: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.ranks or self.shims)


def attempts_of(run_dir: str) -> list[int]:
    """The numbers of all attempts that have a folder, lowest first."""
    try:
        names = os.listdir(os.path.join(run_dir, "attempts"))
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 10)


def read_pids(run_dir: str, attempt: int, node: str) -> dict[int, RankProcess]:
    """The processes that shims of this node have written down for an attempt; what can't be read is left out."""
    folder = os.path.join(run_dir, "attempts", f"{attempt:04d}", "pids")
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found = {}
    for name in names:
        stem, ext = os.path.splitext(name)
        number = stem.removeprefix("rank_")
        if ext != ".json" or not (number.isascii() and number.isdigit() and len(number) < 9):
            continue
        process = _read_one(os.path.join(folder, name), int(number), attempt, node)
        if process is not None:
            found[process.rank] = process
    return found


def _read_one(path: str, rank: int, attempt: int, node: str) -> RankProcess | None:
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(4096))
            written = os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("node") != node:
        return None
    pid, shim = record.get("pid"), record.get("shim_pid")
    if type(pid) is not int or pid <= 1:
        return None
    return RankProcess(rank, attempt, pid, shim if type(shim) is int and shim > 1 else None, written)


def is_still(pid: int, written: float) -> bool:
    """Is this living process older than a file written at `written` (wall seconds)? Else the pid is used again."""
    process = look(pid)
    if process is None:
        return False
    return _boot_wall() + process.start_ticks / _TICKS <= written + _SLACK_S


def _boot_wall() -> float:
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise OSError("/proc/stat: no btime")


def leftovers(run_dir: str, node: str, before: int) -> Leftovers:
    """Living processes on this node of attempts lower than `before`: ranks, what they started, and their shims."""
    run_dir = os.path.abspath(run_dir)
    shims: set[int] = set()
    ranks: set[int] = set()
    groups: set[int] = set()
    for attempt in attempts_of(run_dir):
        if attempt >= before:
            break
        for process in read_pids(run_dir, attempt, node).values():
            groups.add(process.pid)
            if is_still(process.pid, process.written):
                ranks.add(process.pid)
            if process.shim_pid is not None and is_still(process.shim_pid, process.written):
                shims.add(process.shim_pid)
    for name in os.listdir("/proc"):
        found = look(int(name)) if name.isdigit() else None
        if found is not None and _is_left(found, run_dir, node, before, groups):
            ranks.add(found.pid)
    return Leftovers(frozenset(ranks - shims - {os.getpid()}), frozenset(shims - {os.getpid()}))


def _is_left(process: Process, run_dir: str, node: str, before: int, groups: set[int]) -> bool:
    """Is this of an older attempt: by its environment, or (a worker of a rank forked warm) by its process group?"""
    if not holds(process.pid, {"RELIGHT_NODE": node}):
        return False
    found = environment(process.pid)
    if os.path.abspath(found.get("RELIGHT_RUN_DIR", "")) != run_dir:
        return False
    attempt = found.get("RELIGHT_ATTEMPT")
    if attempt is None:
        return process.group in groups
    return attempt.isascii() and attempt.isdigit() and int(attempt) < before
