"""One look at a job: the job, its steps and its nodes, or why they could not be read. Who tells of them is a narrow port."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slurm import localfiles, parsing
from slurm.cluster import NotKnown, Unreadable
from slurm.once import write_once
from slurm.parsing import JobRow, ListedNode, ListedStep
from slurm.states import Phase

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """What Slurm said. `allocation`: the nodes that the job began with, also those that have left it since."""

    job: JobRow
    allocation: tuple[str, ...]
    steps: tuple[ListedStep, ...]
    nodes: Mapping[str, ListedNode]


class Source(Protocol):
    """What Slurm says of one job. Each answer is whole, or Unreadable; none takes longer than its deadline."""

    def job(self) -> JobRow | Unreadable:
        """The job as it is now."""
        ...

    def steps(self) -> tuple[ListedStep, ...] | Unreadable:
        """Its steps that are not over."""
        ...

    def nodes(self, names: tuple[str, ...]) -> Mapping[str, ListedNode] | Unreadable:
        """These nodes, those that Slurm knows, by name."""
        ...


class Reader:
    """Puts together what a source says of one job, and remembers the nodes that it began with."""

    def __init__(self, run_dir: str, job: str, source: Source) -> None:
        self._run_dir = run_dir
        self._job = job
        self._source = source
        self._allocations: dict[str, tuple[str, ...]] = {}
        self._last: tuple[float, Listing] | None = None

    def look(self, within_s: float = 0.0) -> Listing | Unreadable:
        """Job, steps and nodes; a look that began in the last `within_s` seconds and gave all of them will do."""
        began, last = time.monotonic(), self._last
        if last is not None and began - last[0] < within_s:
            return last[1]
        seen = self._look()
        self._last = (began, seen) if isinstance(seen, Listing) else None
        return seen

    def _look(self) -> Listing | Unreadable:
        """A job that is not running has neither steps nor nodes."""
        job = self._source.job()
        if isinstance(job, Unreadable):
            return job
        try:
            allocation = self._allocation(job)
        except (OSError, ValueError) as error:
            return Unreadable(str(error))
        if job.phase in {Phase.WAITING, Phase.ENDED}:
            return Listing(job, allocation, (), {})
        steps = self._source.steps()
        if isinstance(steps, Unreadable):
            return steps
        nodes = self._source.nodes(allocation)
        return nodes if isinstance(nodes, Unreadable) else Listing(job, allocation, steps, nodes)

    def _allocation(self, job: JobRow) -> tuple[str, ...]:
        """The nodes that this start of the job began with. A node that fails leaves the job's own list for good.

        The first list that is read is kept in a file, so that a controller that comes later knows who is missing.
        """
        if job.phase is Phase.WAITING or not job.start:
            return ()
        if job.start not in self._allocations:
            path = f"{self._run_dir}/nodes/job-{self._job}-{job.start.replace(':', '')}.json"
            if job.phase is Phase.ENDING and not os.path.exists(path):
                # One that is requeued shows another start each second until it is pending.
                return next(reversed(self._allocations.values()), job.nodes)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            if job.nodes:
                write_once(path, {"schema": 1, "nodes": list(job.nodes)})
            self._allocations[job.start] = _read_allocation(path)
        return self._allocations[job.start]


def understood(who: str, told: str, rows: Callable[[str], T]) -> T | Unreadable:
    """What `rows` (of `parsing`) makes of a text; Unreadable where that is nothing."""
    try:
        return rows(told)
    except ValueError as error:
        return Unreadable(f"{who}: {error}")


def understood_job(who: str, told: str, number: str) -> JobRow | Unreadable:
    """The job of this number in the lines of `parsing.JOB_FORMAT`. One that is not there is not known, never over."""
    job = understood(who, told, lambda text: parsing.job(text, number))
    if job is None:
        return NotKnown(f"job {number} is not known to Slurm")
    if isinstance(job, JobRow) and job.phase is Phase.UNKNOWN:
        return Unreadable(f"job {number} is in a state that is not known: {job.state}")
    return job


def _read_allocation(path: str) -> tuple[str, ...]:
    """Raises OSError, and ValueError for a file that is not of this form."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        document = json.loads(data)
        return tuple(localfiles.good_name(name) for name in {1: document["nodes"]}[document["schema"]])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error!r}") from error
