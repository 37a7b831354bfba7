"""How much memory the ranks of this node take while a save is written: an asynchronous one keeps a copy of the state.

Measured is what can't be dropped: anonymous and shared pages of the ranks and all that they have started. Where a cgroup of
their own tells it (Slurm's), that is taken; else the resident pages are added up, in which what a fork shares counts twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from slurm.processes import look

LONGEST_S: Final = 1800.0
"""Seconds after which a save is no longer watched: on most nodes nobody says that it is written."""

_KEPT: Final = re.compile(r"^(?:anon|shmem) (\d{1,19})$", re.MULTILINE)
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Save:
    attempt: int
    step: int
    began: float
    peak: int = 0
    over: bool = False


class SaveMemory:
    """The newest save of this node's ranks. Times are monotonic seconds; memory in bytes."""

    def __init__(self, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._save: _Save | None = None

    def heard(self, message: dict[str, Any], now: float) -> bool:
        """Note what a rank says of a save; True when one has begun that was not watched."""
        attempt, step, state = message.get("a"), message.get("step"), message.get("state")
        if message.get("k") != "save" or type(step) is not int or type(attempt) is not int:
            return False
        known = self._save
        same = known is not None and (known.attempt, known.step) == (attempt, step)
        if known is not None and same:
            known.over = known.over or state in {"written", "failed"}
        elif state == "begin" and (known is None or (attempt, step) > (known.attempt, known.step)):
            self._save = _Save(attempt, step, now)
            return True
        return False

    def watches(self, now: float) -> bool:
        """Is a save being written, as far as is known here?"""
        return self._save is not None and not self._save.over and now - self._save.began < LONGEST_S

    def look(self, pids: Collection[int]) -> None:
        """Look once at the ranks, whose processes these are. Blocks for some 20 ms on a node with many processes."""
        save = self._save
        if save is not None:
            save.peak = max(save.peak, self._of_cgroups(pids) or self._of_processes(pids))

    def told(self) -> list[int] | None:
        """[attempt, step, bytes at most so far]; None when nothing was seen."""
        save = self._save
        return None if save is None or not save.peak else [save.attempt, save.step, save.peak]

    def _of_cgroups(self, pids: Collection[int]) -> int | None:
        """By the ranks' cgroups; None where they are not their own, or do not tell."""
        ours = self._cgroup(os.getpid())
        groups = {self._cgroup(pid) for pid in pids}
        if not groups or None in groups or ours is None:
            return None
        total = 0
        for group in sorted(one for one in groups if one is not None):
            if ours == group or ours.startswith(group.rstrip("/") + "/"):
                return None  # it holds us too, and who knows what else
            text = _read(f"{self._cgroups}{group}/memory.stat")
            kept = _KEPT.findall(text)
            if not kept:
                return None
            total += sum(map(int, kept))
        return total

    def _cgroup(self, pid: int) -> str | None:
        """Its group in the unified hierarchy."""
        lines = _read(f"{self._proc}/{pid}/cgroup").splitlines()
        return next((line[3:] for line in lines if line.startswith("0::/")), None)

    def _of_processes(self, pids: Collection[int]) -> int:
        total = 0
        for pid in _family(pids, self._proc):
            fields = _read(f"{self._proc}/{pid}/statm").split()
            # Resident without what is backed by files; shared memory counts there as well, and is small beside.
            total += (int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else 0
        return total


def _family(pids: Collection[int], proc: str) -> set[int]:
    """These processes and all that they have started."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        one = look(int(name)) if name.isdigit() else None
        if one is not None:
            children.setdefault(one.parent, []).append(one.pid)
    found, fresh = set(pids), list(pids)
    while fresh:
        begun = [child for child in children.get(fresh.pop(), ()) if child not in found]
        found.update(begun)
        fresh += begun
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
