"""What the agents say, checked and folded into the attempts' progress and findings. Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from policies.facts import Finding, RankExit, StepRow
from supervisor.evidence.scan import scan
from supervisor.observe import health, messages
from supervisor.observe.found import Found
from supervisor.observe.messages import Raw
from supervisor.observe.progress import Pace, Progress, phase_of

_ATTEMPTS: Final = 2
"""Attempts that are remembered; messages of others are ignored."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a node against ours: add `offset` to its wall time, give or take `bound` (seconds)."""

    offset: float
    bound: float


@dataclass(slots=True)
class Intake:
    """The attempts that are known, their findings, and the step rows that nobody has taken yet."""

    attempts: dict[int, Progress] = field(default_factory=dict)
    found: Found = field(default_factory=Found)
    rows: list[StepRow] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    nodes: health.Nodes = field(default_factory=health.Nodes)
    slots: frozenset[str] = frozenset()
    ignored: int = 0

    def begin(self, attempt: int, world: int, slots: frozenset[str] = frozenset()) -> None:
        """A new attempt on the nodes `slots`; of one that is known only those are taken over."""
        self.slots = slots or self.slots
        if attempt in self.attempts or attempt < 1:
            return
        self.attempts[attempt] = Progress(attempt, world, self.pace)
        for node, ill in self.nodes.ill():  # it belongs to the evidence of this attempt too
            self.found.note(health.finding(ill, node, attempt, 0.0, 0.0, holds_slot=False))
        for old in sorted(self.attempts)[:-_ATTEMPTS]:
            del self.attempts[old]
            self.found.forget(old)

    def beat(self, rows: object, now: float) -> None:
        """The ranks of one node: [rank, attempt, phase, step, idle seconds] each."""
        if not isinstance(rows, list):
            self.ignored += 1
            return
        for row in rows:
            if not isinstance(row, list) or len(row) < 5:
                self.ignored += 1
                continue
            rank, attempt, phase, step, idle = row[:5]
            known = self.attempts.get(attempt) if type(attempt) is int else None
            idle_s = messages.number(idle)
            if known is None or type(rank) is not int or not 0 <= rank < known.world or idle_s is None:
                self.ignored += 1
                continue
            known.heard(rank, now - max(0.0, idle_s))  # a rank of which a beat tells has started
            done = step if type(step) is int and -1 <= step < messages.LARGEST else -1
            known.moved(rank, phase_of(phase), done, now - max(0.0, idle_s))

    def saving(self, said: object, now: float) -> None:
        """What the ranks of a node take while they save: [attempt, step, bytes at most]."""
        if said is None:
            return
        told = [messages.count(one) for one in said] if isinstance(said, list) else []
        if len(told) != 3 or None in told:
            self.ignored += 1
            return
        attempt, step, peak = (one or 0 for one in told)
        if attempt in self.attempts:
            self.attempts[attempt].save_memory(step, peak, now)

    def rank(self, said: object, node: str, clock: Clock, now: float) -> bool:
        """One message of a rank; False when it made no sense or is of an attempt that is over."""
        known = rank = None
        if isinstance(said, dict):
            attempt = messages.count(said.get("a"))
            known = self.attempts.get(attempt) if attempt is not None else None
            rank = messages.count(said.get("r"), known.world) if known is not None else None
        if not isinstance(said, dict) or known is None or rank is None:
            self.ignored += 1
            return False
        # When it happened, not when it came: what was kept while no controller lived is told late.
        told = messages.number(said.get("t"))
        at = now if told is None else min(now, told + clock.offset)
        if not self._rank_said(known, rank, said, node, clock, at):
            self.ignored += 1
            return False
        return True

    def finding(self, raw: object, node: str, clock: Clock) -> Finding | None:
        """A finding of an agent; None when it made no sense or is known already."""
        found = messages.finding(raw, node, clock.offset, clock.bound)
        if found is None or found.attempt not in self.attempts:
            self.ignored += 1
            return None
        return found if self.found.note(found) else None

    def health(self, raw: object, node: str, clock: Clock) -> list[health.Health]:
        """Results of checks of a node; returns those that say something else than before."""
        results = health.read_results(raw)
        if results is None:
            self.ignored += 1
            return []
        news = self.nodes.note(node, results)
        for one in news:
            for attempt in self.attempts:
                if one.state == "unhealthy" and attempt >= one.attempt:
                    ours = not self.slots or node in self.slots
                    self.found.note(
                        health.finding(one, node, attempt, clock.offset, clock.bound, holds_slot=ours),
                    )
        return news

    def exit(self, raw: object, rank: int, attempt: int, clock: Clock) -> RankExit | None:
        """The exit record of this rank and attempt, noted in our time; None when it is another's or makes no sense."""
        known = self.attempts.get(attempt)
        end = messages.rank_exit(raw, known.world) if known is not None and isinstance(raw, dict) else None
        if known is None or end is None or (end.rank, end.attempt) != (rank, attempt):
            return None
        known.exited(replace(end, wall=end.wall + clock.offset))
        return end

    def _rank_said(self, known: Progress, rank: int, said: Raw, node: str, clock: Clock, at: float) -> bool:
        kind, phase = said.get("k"), phase_of(said.get("phase"))
        if kind == "step":
            return self._step(known, rank, said, at)
        if kind == "exit":
            return self.exit(said, rank, known.attempt, clock) is not None
        if kind == "start":
            known.heard(rank, at, messages.count(said.get("pid")))
        elif kind == "hello":
            known.heard(rank, at, speaks=True)
        elif kind == "loaded":
            loaded = messages.loaded(said, rank, node, known.attempt)
            if loaded is None:
                return False
            known.loaded(loaded, at)
        elif kind == "exception":
            self.found.note(_exception(known.attempt, rank, said, node, clock))
        elif kind == "done":
            known.done(rank, at)
        elif kind == "save":
            step = messages.count(said.get("step"))
            if step is None:
                return False
            seconds, size = messages.number(said.get("seconds")), messages.count(said.get("bytes"))
            known.save(step, str(said.get("state")), at, seconds, size)
        elif kind != "phase":
            return False
        known.moved(rank, phase, -1, at)
        return True

    def _step(self, known: Progress, rank: int, said: Raw, at: float) -> bool:
        row = messages.step_row(said, known.attempt, at)
        if row is None:
            return False
        if "loss" in said:
            if row.seconds == 0 and known.last_row is not None:
                row = replace(row, seconds=max(0.0, at - known.last_row.at))
            if known.row(row, non_finite=said.get("non_finite") is True, from_log=said.get("from_log") is True):
                self.rows.append(row)
        known.moved(rank, phase_of(said.get("phase", "step")), row.step, at)
        return True


def _exception(attempt: int, rank: int, said: Raw, node: str, clock: Clock) -> Finding:
    line = f"{messages.text(said.get('type'), 128) or 'exception'}: {messages.text(said.get('text'), 2048) or ''}"
    match = scan(line)
    where, wall = messages.text(said.get("where"), 512), messages.number(said.get("t"))
    return Finding(
        attempt=attempt,
        kind=match.kind if match else "exception",
        role=match.role if match else "root",
        category=match.category if match else "software.user",
        text=f"{line[:512]} ({where})" if where else line[:512],
        rank=rank,
        node=node,
        wall=None if wall is None else wall + clock.offset,
        monotonic=messages.number(said.get("m")),
        offset_bound=clock.bound,
        blames=match.blames if match else "reporter",
    )
