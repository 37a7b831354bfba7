"""Which node reads which file of a save, and what is known of each: the state of one reading that is shared. Pure.

Files go out one by one, the longest first, to whoever has room, so that a node that dies takes little along and a slow
one gets little. No node is given more than twice its even share: one that answers at once without reading would have all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from supervisor.checkpoints.reading.content import FileRead, Job
from supervisor.checkpoints.reading.findings import Finding, Weight

WINDOW: Final = 4
"""Files that a node has at a time: as many as its child reads at a time."""

FLOOR: Final = 20e6
"""Bytes a second below which no node is waited for: a store that gives less would take four days for 7 TB."""

SLOWER: Final = 8.0
"""A node that is so many times slower than the median of all answers is late."""

FIRST_S: Final = 60.0
"""Seconds that a node has beside the reading itself before its first answer: its child reads the metadata then."""

NEXT_S: Final = 10.0


@dataclass(slots=True)
class _Node:
    out: dict[str, float] = field(default_factory=dict)  # path -> when it was given
    given: int = 0  # bytes, in all
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node has said of a file; `node` "" is this machine itself."""

    node: str
    read: FileRead

    @property
    def says_broken(self) -> bool:
        """Does it claim that the file is not what it must be?"""
        return any(found.weight is Weight.BROKEN for found in self.read.findings)


class Shares:
    """`jobs` over nodes. Times are seconds of one clock; `grace_s` scales FIRST_S and NEXT_S (1: as they are)."""

    def __init__(self, jobs: Iterable[Job], grace: float = 1.0) -> None:
        self.jobs = {job.name: job for job in sorted(jobs, key=lambda job: (-job.stamp.size, job.name))}
        self.answers: dict[str, Answer] = {}
        self._total = sum(job.stamp.size for job in self.jobs.values())
        self._grace = grace
        self._waiting = dict(self.jobs)
        self._nodes: dict[str, _Node] = {}
        self._tried: dict[str, set[str]] = {}
        self._speeds: list[float] = []

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that read now."""
        return tuple(self._nodes)

    @property
    def is_out(self) -> bool:
        """Has any node a file that it has not answered for?"""
        return any(one.out for one in self._nodes.values())

    def join(self, node: str) -> None:
        """One more node reads."""
        self._nodes.setdefault(node, _Node())

    def choose(self, node: str) -> Job | None:
        """What this node should read next; None: nothing now."""
        known = self._nodes.get(node)
        if known is None or len(known.out) >= WINDOW or not self._waiting:
            return None
        most = 2 * self._total / len(self._nodes)
        smallest = self._waiting[next(reversed(self._waiting))].stamp.size
        if known.given and known.given + smallest > most:
            return None  # said at once: hundreds of nodes are asked after each answer
        for job in self._waiting.values():
            fits = known.given == 0 or known.given + job.stamp.size <= most
            if fits and node not in self._tried.get(job.name, ()):
                return job
        return None

    def give(self, node: str, job: Job, now: float) -> None:
        """It was asked to read this file."""
        del self._waiting[job.name]
        known = self._nodes[node]
        known.out[job.name] = now
        known.given += job.stamp.size

    def answered(self, node: str, read: FileRead, now: float) -> bool:
        """It has read the file; False when it was not asked to, or no longer."""
        known = self._nodes.get(node)
        began = known.out.pop(read.name, None) if known is not None else None
        if known is None or began is None:
            return False
        known.answered = True
        self._speeds.append(self.jobs[read.name].stamp.size / max(now - began, 1e-3))
        self.answers[read.name] = Answer(node, read)
        return True

    def settle(self, reads: Iterable[FileRead]) -> None:
        """This machine has read these files itself; that stands above what a node has said."""
        for read in reads:
            self._waiting.pop(read.name, None)
            self.answers[read.name] = Answer("", read)

    def unable(self, node: str, path: str) -> None:
        """It can't read this file: another one is asked."""
        known = self._nodes.get(node)
        if known is not None and known.out.pop(path, None) is not None:
            known.answered = True
            self._tried.setdefault(path, set()).add(node)
            self._back([path])

    def drop(self, node: str, *, unsay: bool = False) -> list[str]:
        """It reads no more: what it has is given to others. `unsay`: all that it has said too; those files are returned."""
        known = self._nodes.pop(node, None)
        said = [path for path, one in self.answers.items() if one.node == node] if unsay else []
        for path in said:
            del self.answers[path]
        self._back([*(known.out if known is not None else ()), *said])
        return said

    def late(self, now: float, rate: float | None) -> list[str]:
        """Nodes that have had a file for too long. `rate`: the limit of speed, bytes a second, or None."""
        floor = max(FLOOR, median(self._speeds) / SLOWER) if self._speeds else FLOOR
        floor = floor if rate is None else min(floor, rate / SLOWER)
        found = []
        for node, known in self._nodes.items():
            grace = self._grace * (NEXT_S if known.answered else FIRST_S)
            has = sum(self.jobs[path].stamp.size for path in known.out)
            if known.out and now - min(known.out.values()) > grace + has / floor:
                found.append(node)
        return found

    def left(self) -> list[Job]:
        """What nobody has and nobody has answered for."""
        return list(self._waiting.values())

    def of(self, node: str) -> list[Job]:
        """The files that this node has answered for, the smallest first."""
        return sorted(
            (self.jobs[path] for path, one in self.answers.items() if one.node == node), key=lambda job: job.stamp.size
        )

    def claims(self) -> list[Job]:
        """Files that a node says are broken, and that nobody else has read; the smallest first."""
        named = (self.jobs[path] for path, one in self.answers.items() if one.node and one.says_broken)
        return sorted(named, key=lambda job: job.stamp.size)

    @property
    def is_broken(self) -> bool:
        """Has this machine itself found a file to be broken?"""
        return any(one.says_broken for one in self.answers.values() if not one.node)

    def told(self) -> str:
        """Who has read how much."""
        by: dict[str, int] = {}
        for path, one in self.answers.items():
            by[one.node] = by.get(one.node, 0) + self.jobs[path].stamp.size
        here = f"{by.pop('', 0) / 1e9:.3f} GB read here"
        nodes = f", {sum(by.values()) / 1e9:.3f} GB by {', '.join(sorted(by)[:8])}" if by else ""
        return f"{here}{nodes}{f' and {len(by) - 8} more' if len(by) > 8 else ''}"

    def _back(self, paths: Iterable[str]) -> None:
        self._waiting |= {path: self.jobs[path] for path in paths}
        self._waiting = {path: job for path, job in self.jobs.items() if path in self._waiting}


def judged(job: Job, read: FileRead) -> FileRead:
    """An answer of a node with what the manifest says of the sum: the node itself is never told what the sum must be."""
    if job.xxh3 is None or read.xxh3 is None or read.xxh3 == job.xxh3:
        return read
    found = Finding("SUM", job.name, f"xxh3 {read.xxh3}, in the manifest {job.xxh3}")
    return FileRead(read.name, read.xxh3, (*read.findings, found))
