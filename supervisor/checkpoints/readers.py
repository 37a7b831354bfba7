"""The bytes of a save are read by the agents of many nodes, and by threads of this machine where there are none.

What a node says is a claim. A file that it says is broken is read again here before anybody believes it. Of what it says is
whole, one file is read again here on a first read; on a later one the sum itself is the proof, for no node is told what it
must be. Who is caught is believed in nothing.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from supervisor.checkpoints.readers_said import Crew, Gone, Mailbox, Nonsense, Part, Said, Unable
from supervisor.checkpoints.readers_share import Shares, judged
from supervisor.checkpoints.reading.by_threads import ByThreads, Progress
from supervisor.checkpoints.reading.content import FileRead, Job
from supervisor.checkpoints.reading.findings import Weight
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.reading.throttle import CancelledError, Throttle

WORTH: Final = 1 << 30
"""Bytes of a save from which on agents are asked: a smaller one is read here before their children have started."""

PROBE: Final = 4 << 30
"""Bytes of the largest file that is read again to see whether a node tells the truth; where all are larger, the smallest."""

SLICE: Final = 16 << 30
"""Bytes that this machine reads by itself before it looks again who else may: when a run stops, many may."""

LOOK_S: Final = 0.5
"""Seconds between two looks at who may read, how fast, and who is late."""

ENDS: Final = 3
"""So often a node may stop in one reading, as when another goes first, before it is no longer asked."""

ASK_S: Final = 3600.0
"""Seconds that a child may go on after it was last asked for something, where this controller is no more."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Reads files by whoever may; see `ReadFiles`. `here` reads on this machine; `tell` says a line to the log: of what is
    wrong, and of what was read (`wrong` False).

    `first`: an incident waits for it, so it takes nodes from other readings. `worth`: bytes from which on nodes are asked.
    `clock` gives monotonic seconds; `grace` is that of `Shares`.
    """

    here: ByThreads
    crew: Crew
    tell: Callable[[str, bool], None]
    first: bool = False
    worth: int = WORTH
    clock: Callable[[], float] = time.monotonic
    grace: float = 1.0
    told: set[str] = field(default_factory=set)

    def read(
        self,
        folder: str,
        structure: Structure | None,
        jobs: list[Job],
        progress: Progress,
        throttle: Throttle | None = None,
    ) -> list[FileRead]:
        """See ReadFiles."""
        throttle = throttle or Throttle(self.here.pace)
        if sum(job.stamp.size for job in jobs) < self.worth:
            return self.here.read(folder, structure, jobs, progress, throttle)
        mailbox: Mailbox = queue.SimpleQueue()
        began, name = self.clock(), self.crew.begin(mailbox)
        shares = Shares(jobs, self.grace)
        try:
            _Spread(self, name, mailbox, shares, folder, structure, progress, throttle).run()
        finally:
            self.crew.end(name)
        self.tell(f"{folder}: {shares.told()}, in {self.clock() - began:.1f} s", False)
        return [shares.answers[job.name].read for job in jobs]

    def tell_once(self, kind: str, line: str) -> None:
        """A line of this kind, the first time."""
        if kind not in self.told:
            self.told.add(kind)
            self.tell(line, True)


@dataclass(slots=True)
class _Spread:
    """One reading that is shared."""

    readers: Readers
    name: str
    mailbox: Mailbox
    shares: Shares
    folder: str
    structure: Structure | None
    progress: Progress
    throttle: Throttle
    dropped: set[str] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    probed: set[str] = field(default_factory=set)
    rate: float | None = None
    look_at: float = 0.0

    def run(self) -> None:
        """Until every file has an answer that may be believed. Raises CancelledError, OSError."""
        while True:
            self._by_nodes()
            if left := self._slice():
                self.shares.settle(self._here(left, self.progress))
            elif not self._prove():
                return

    # --- by nodes --------------------------------------------------------------------------------------------------

    def _by_nodes(self) -> None:
        """Have nodes read until there is nothing that any of them could read."""
        while True:
            if self.throttle.cancelled:
                raise CancelledError
            self._look()
            self._hand_out()
            able = any(self.shares.choose(node) for node in self.shares.nodes)
            if not able and not self.shares.is_out:
                return
            waits = self.readers.here.pace.wait_s() if able else LOOK_S
            try:
                self._take(self.mailbox.get(timeout=min(LOOK_S, max(waits, 0.001))))
            except queue.Empty:
                continue

    def _look(self) -> None:
        """How fast, who may read by now, and who is late; the last two now and then, not after each of thousands of answers."""
        readers, rate, now = self.readers, self.readers.here.pace.rate, self.readers.clock()
        if rate != self.rate:
            self.rate = rate
            for node in self.shares.nodes:
                self._ask(node, [])
        if now < self.look_at:
            return
        self.look_at = now + LOOK_S
        for node in readers.crew.claim(self.name, first=readers.first, but=frozenset(self.dropped)):
            self.shares.join(node)
        for node in self.shares.late(now, rate):
            self._drop(node)
            self.dropped.add(node)

    def _hand_out(self) -> None:
        """One file after the other in turn; with a limit of speed only as many as may be read by now, over all readers."""
        pace, batches = self.readers.here.pace, dict[str, list[Job]]()
        given = True
        while given:
            given = False
            for node in self.shares.nodes:
                job = self.shares.choose(node) if pace.wait_s() <= 0 else None
                if job is not None:
                    pace.book(job.stamp.size)
                    self.shares.give(node, job, self.readers.clock())
                    batches.setdefault(node, []).append(job)
                    given = True
        for node, jobs in batches.items():
            self._ask(node, jobs)

    def _ask(self, node: str, jobs: list[Job]) -> None:
        files = [
            {"path": job.name, "size": job.stamp.size, "crc": job.extents is not None, "sha256": job.sha256}
            for job in jobs
        ]
        message: dict[str, Any] = {"root": self.folder, "files": files, "rate": self.rate, "deadline_s": ASK_S}
        self.readers.crew.ask(self.name, node, message)

    def _take(self, said: Said) -> None:
        """What a node says of a file, or of itself."""
        match said:
            case Part():
                self._part(said)
            case Unable():
                self.shares.unable(said.node, said.path)
            case Gone():
                if said.away:
                    self.readers.tell_once("away", f"{self.folder} can't be seen on {said.node}: it is read elsewhere")
                self._drop(said.node, said.why if said.away else "")
            case Nonsense():
                self._unmask(said.node, said.why)

    def _part(self, said: Part) -> None:
        job = self.shares.jobs.get(said.path)
        if job is None:
            return
        if said.size != job.stamp.size:
            self._unmask(said.node, f"{said.path} has {job.stamp.size} bytes, not {said.size}")
            return
        items = None if job.extents is None else len(job.extents.starts)
        unsure = any(found.weight is Weight.NOT_YET for found in said.findings)
        if said.xxh3 is None or unsure or said.items != items:
            self.shares.unable(said.node, said.path)
            return
        read = judged(job, FileRead(said.path, said.xxh3, said.findings))
        if self.shares.answered(said.node, read, self.readers.clock()):
            self.progress(job.stamp.size)

    def _drop(self, node: str, distrust: str = "") -> None:
        """What it has said stands; it may come back, but not for ever."""
        if node not in self.shares.nodes:
            return  # it was told twice
        self.ends[node] += 1
        if self.ends[node] >= ENDS:
            self.dropped.add(node)
        self.shares.drop(node)
        self.readers.crew.release(self.name, node, distrust)

    def _unmask(self, node: str, why: str) -> None:
        """It has said what is not so: nothing of it is believed."""
        self.readers.tell(f"{node} is not believed about {self.folder}: {why}", True)
        self.dropped.add(node)
        for path in self.shares.drop(node, unsay=True):
            self.progress(-self.shares.jobs[path].stamp.size)
        self.readers.crew.release(self.name, node, why)

    # --- here ------------------------------------------------------------------------------------------------------

    def _here(self, jobs: list[Job], progress: Progress = lambda _: None) -> list[FileRead]:
        return self.readers.here.read(self.folder, self.structure, jobs, progress, self.throttle)

    def _slice(self) -> list[Job]:
        """Some of what nobody else can read."""
        chosen, size = list[Job](), 0
        for job in self.shares.left():
            if size >= SLICE and len(chosen) >= self.readers.here.threads:
                break
            chosen.append(job)
            size += job.stamp.size
        return chosen

    def _prove(self) -> bool:
        """Hold what nodes have said against what is read here; True when there is more to do."""
        if self.shares.is_broken:
            return False  # one file that is broken is enough; what nodes say of others stands beside it
        claims = self.shares.claims()[: self.readers.here.threads]
        if claims:
            said = {job.name: self.shares.answers[job.name] for job in claims}
            reads = self._here(claims)
            self.shares.settle(reads)
            clean = [one.name for one in reads if all(found.weight is Weight.NOTE for found in one.findings)]
            self._unmask_all((said[name].node, f"{name} is whole, and it was said to be broken") for name in clean)
            return True
        return self.structure is not None and self._probe()

    def _probe(self) -> bool:
        """Read one file of each node again; True when one has lied."""
        nodes = {one.node for one in self.shares.answers.values() if one.node} - self.probed
        self.probed |= nodes
        chosen = {}
        for node in nodes:
            jobs = self.shares.of(node)
            chosen[secrets.choice([job for job in jobs if job.stamp.size <= PROBE] or jobs[:1]).name] = node
        said = {name: self.shares.answers[name].read for name in chosen}
        reads = self._here([self.shares.jobs[name] for name in chosen]) if chosen else []
        self.shares.settle(reads)
        other = [one.name for one in reads if one.xxh3 is not None and one.xxh3 != said[one.name].xxh3]
        self._unmask_all((chosen[name], f"the sum of {name} is another than it has said") for name in other)
        return bool(other)

    def _unmask_all(self, caught: Iterable[tuple[str, str]]) -> None:
        for node, why in dict(caught).items():
            self._unmask(node, why)
