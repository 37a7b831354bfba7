"""What srun has said about each step so far: read again only when there is more of it, and never once it is told to stop."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from slurm import launching, parsing
from slurm.cluster import LaunchSpec, TaskEnd


@dataclass(frozen=True, slots=True)
class Told:
    """Ends of tasks, and what else srun complained of."""

    ends: tuple[TaskEnd, ...] = ()
    complaints: tuple[str, ...] = ()


NOTHING: Final = Told()


class SrunWords:
    """Keeps what was read. What is said after a stop is of the stop."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, Told]] = {}
        self._closed: set[str] = set()

    def close(self, step: str) -> None:
        """It is about to be stopped: what was read by now is all that counts."""
        self._closed.add(step)

    def of(self, order: LaunchSpec) -> Told:
        """What srun has said of this step."""
        size, told = self._kept.get(order.name, (0, NOTHING))
        if order.name in self._closed:
            return told
        try:
            now = os.stat(order.output).st_size
        except OSError:
            return told
        if now != size:
            said = launching.said(order.output)
            told = Told(parsing.task_ends(said, order.hosts), parsing.complaints(said))
            self._kept[order.name] = (now, told)
        return told
