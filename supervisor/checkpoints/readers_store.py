"""How a store reads: beside training, within a limit of speed; and in an incident, when nothing trains, as fast as it goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.checkpoints.readers import WORTH, Readers
from supervisor.checkpoints.readers_said import Crew
from supervisor.checkpoints.reading.by_threads import ByThreads, ReadFiles
from supervisor.checkpoints.reading.room import Room, available
from supervisor.checkpoints.reading.throttle import Pace


@dataclass(frozen=True, slots=True)
class StoreReading:
    """`beside`: for seals and scrubs, all at one `pace` together; `urgent`: for a view, at `urgent_pace`, without a limit.

    `rate`: the limit, bytes a second, or None. It is for reading beside training: `training(False)` lifts it, also for
    what is being read already.
    """

    threads: int
    rate: float | None
    pace: Pace
    beside: ReadFiles
    urgent: ReadFiles
    urgent_pace: Pace
    room: Room = field(default_factory=lambda: Room(available()))

    def end(self) -> None:
        """Give up what is being read: the controller ends, and the next one begins anew."""
        self.pace.end()
        self.urgent_pace.end()

    def training(self, runs: bool) -> None:
        """Does an attempt run now?"""
        self.pace.set(self.rate if runs else None)


def by_threads(threads: int | None = None, rate: float | None = None) -> StoreReading:
    """By threads of this process alone: `threads` None is two a core, at most 16."""
    count = threads or min(16, 2 * (os.cpu_count() or 1))
    pace, urgent = Pace(rate), Pace()
    return StoreReading(count, rate, pace, ByThreads(count, pace), ByThreads(count, urgent), urgent)


def by_agents(
    crew: Crew,
    tell: Callable[[str, bool], None],
    threads: int | None = None,
    rate: float | None = None,
    worth: int = WORTH,
) -> StoreReading:
    """By the agents of the nodes that may, and by threads of this process; `tell` says a line to the log."""
    here = by_threads(threads, rate)
    told: set[str] = set()
    beside = Readers(ByThreads(here.threads, here.pace), crew, tell, worth=worth, told=told)
    urgent = Readers(ByThreads(here.threads, here.urgent_pace), crew, tell, first=True, worth=worth, told=told)
    return StoreReading(here.threads, rate, here.pace, beside, urgent, here.urgent_pace)
