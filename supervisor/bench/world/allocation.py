"""The job that holds the nodes, as whoever watches from outside of it sees it: it ends, is requeued, and begins anew elsewhere.

What takes the nodes away kills all that runs there. The facts are those of docs/slurm.md: a running job gets no new nodes, a
node that was lost has left it for good, and one that waits has neither nodes nor a start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from slurm.cluster import EndsBy, Job, NodeCondition
from supervisor.bench.world.machines import Node, Power
from supervisor.bench.world.timeline import Timeline

SIGNAL_S: Final = 0.3
"""A job shows as ending so long before its tasks are signalled; all of them end by that."""
LOOKS_S: Final = 10.0
"""A job that waits for nodes is looked at so often by the scheduler."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """How the nodes are held. `ends_s`: the time limit, from each start; `pool`: machines beyond those of the first job.

    `waits_s`: how long a requeued job is pending at least; `ending_s`: how long one that ends is completing.
    """

    ends_s: float | None = None
    pool: int = 0
    waits_s: float = 20.0
    ending_s: float = 2.0
    can_follow: bool = True


@dataclass(slots=True)
class JobLog:
    """What was asked of the job and what became of it, for those who check: (when, what, start)."""

    rows: list[tuple[float, str, str]] = field(default_factory=list)


class SimJob:
    """One job, in one start after the other."""

    def __init__(
        self,
        time: Timeline,
        given: Allocation,
        machines: Mapping[str, Node],
        first: Collection[str],
        changed: Callable[[], None],
        take_away: Callable[[Collection[str]], None],
        near_s: float,
    ) -> None:
        """`take_away`: ends all that runs on these machines. `changed`: what is shown is another now, or the end is near: so
        long before it, or less (seconds).
        """
        self.id = "4711"
        self.names = tuple(first)
        self.left: set[str] = set()  # nodes that were lost while it ran: they are no more of this start
        self.log = JobLog()
        self.phase: Literal["waiting", "running", "ending", "ended"] = "running"
        self.word = "RUNNING"
        self.start = ""
        self.ends_at: float | None = None
        self.ends_by: EndsBy = ""
        self.next = ""
        self.since = time.now  # when the phase was entered
        self.refuses_until = 0.0
        self._excluded: set[str] = set()
        self._time = time
        self._given = given
        self._machines = machines
        self._changed = changed
        self._take_away = take_away
        self._near_s = near_s
        self._entered = 0
        self._run()

    @property
    def runs(self) -> bool:
        """May anything be launched in it?"""
        return self.phase == "running"

    @property
    def lacks_nodes(self) -> bool:
        """Are there too few machines that it could begin on?"""
        return len(self._fit()) < len(self.names)

    @property
    def is_near(self) -> bool:
        """Is its end so near that somebody may have to do something?"""
        return self.ends_at is not None and self._time.now >= self.ends_at - self._near_s

    @property
    def shown(self) -> tuple[str, ...]:
        """Its nodes; one that waits has none."""
        return () if self.phase == "waiting" else self.names

    def row(self) -> Job:
        """As the port shows it."""
        return Job(
            self.id,
            self.start,
            self.phase,
            self.word,
            self.ends_at if self.runs else None,
            self.ends_by if self.runs else "",
            self._given.can_follow,
            self.next,
        )

    def condition(self, name: str, seen: NodeCondition) -> NodeCondition:
        """What the job makes of a node's own condition."""
        if self.phase == "ended" or name in self.left:
            return NodeCondition.DOWN
        return NodeCondition.DRAINED if self.phase == "ending" and seen is NodeCondition.UP else seen

    def lost(self, name: str) -> None:
        """A node is down: it has left the job."""
        if self.phase != "waiting" and name in self.names:
            self.left.add(name)

    # --- what becomes of it -----------------------------------------------------------------------------------------

    def ends(self, at: float, by: EndsBy, word: str, *, requeues: bool = False) -> None:
        """It is known from now on when its nodes are taken back, unless that is known to be sooner."""
        if not self.runs or (self.ends_at is not None and self.ends_at <= at):
            return
        self.ends_at, self.ends_by, start = at, by, self.start
        self._changed()

        def over() -> None:
            if self.start == start and self.ends_at == at:
                self.requeue() if requeues else self.end(word)

        self._time.at(at - self._near_s, lambda: self._changed() if self.start == start else None)
        self._time.at(at, over)

    def lasts(self) -> None:
        """Neither this start nor a later one ends by its time any more."""
        self.ends_at, self.ends_by = None, ""
        self._given = replace(self._given, ends_s=None)
        self._changed()

    def end(self, word: str) -> None:
        """It ends for good: TIMEOUT, CANCELLED. One that waits can only be cancelled, and is gone at once."""
        if self.phase == "waiting" and word == "CANCELLED":
            self._enter("ended", word)
        elif self.runs:
            self._close(lambda: self._enter("ended", word))

    def requeue(self) -> None:
        """It ends, waits, and begins anew."""
        if self.runs:
            self._close(self._wait)
        elif self.phase == "ended":
            self._wait()

    def ask_next(self, start: str, exclude: Collection[str]) -> None:
        """A request of the run for what follows this start. Asked twice, or too late, nothing more comes of it."""
        if start != self.start or self.next or self.phase not in {"running", "ended"}:
            return
        self.log.rows.append((self._time.now, "asked", start))
        self._excluded |= set(exclude)
        self.next = "requeued"
        self.requeue()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _enter(self, phase: Literal["waiting", "running", "ending", "ended"], word: str) -> None:
        self.phase, self.word, self.since = phase, word, self._time.now
        self._entered += 1
        self.log.rows.append((self._time.now, word, self.start))
        self._changed()

    def _close(self, then: Callable[[], None]) -> None:
        self._enter("ending", "COMPLETING")
        names = self.names
        self._time.after(SIGNAL_S, lambda: self._take_away(names))
        self._time.after(max(self._given.ending_s, 2 * SIGNAL_S), then)

    def _wait(self) -> None:
        self.start, self.next = "", ""
        self._enter("waiting", "PENDING")
        self._look_in(self._given.waits_s)

    def _look_in(self, seconds: float) -> None:
        entered = self._entered
        self._time.after(seconds, lambda: self._schedule() if entered == self._entered else None)

    def _fit(self) -> list[str]:
        return [name for name, one in self._machines.items() if name not in self._excluded and _is_fit(one)]

    def _schedule(self) -> None:
        """It begins when there are as many nodes as before; those that it had go first."""
        fit = self._fit()
        kept = [name for name in self.names if name in fit]
        found = [*kept, *(name for name in fit if name not in kept)][: len(self.names)]
        if len(found) < len(self.names):
            self._look_in(LOOKS_S)
            return
        self.names = tuple(sorted(found))
        self._run()

    def _run(self) -> None:
        self.start = datetime.fromtimestamp(self._time.now, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self.left.clear()
        self.ends_at, self.ends_by = None, ""
        self._enter("running", "RUNNING")
        if self._given.ends_s is not None:
            self.ends(self._time.now + self._given.ends_s, "time limit", "TIMEOUT")


def _is_fit(node: Node) -> bool:
    """Would the scheduler give it to anybody?"""
    return node.power is Power.UP and node.condition is NodeCondition.UP and not node.drained_by
