"""Job, steps and nodes read with pyslurm, in a worker process; whatever that can't tell, the commands are asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from slurm import parsing
from slurm.asking import Commands
from slurm.cluster import Unreadable
from slurm.native_process import DeclinedError, LostError, UnfitError, Worker
from slurm.parsing import JobRow, ListedNode, ListedStep
from slurm.reading import understood, understood_job

T = TypeVar("T")

REST_S: Final = 60.0
LONGEST_REST_S: Final = 3600.0
"""After a worker that was late or died the commands are asked for a while, each time twice as long. A slurmctld that hangs
makes every call of pyslurm wait for 10 s (MessageTimeout), and what has crashed once may crash at every look."""


class Native:
    """`slurm.reading.Source` over a worker that has pyslurm. Only reads: what is asked of Slurm goes through commands.

    A read in doubt is never an answer: the same is asked of the commands, and what they say counts.
    """

    def __init__(
        self,
        commands: Commands,
        worker: Worker,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say`: told once when the commands take over, and once when the worker tells again. `clock` in seconds."""
        self._commands = commands
        self._worker = worker
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()  # whoever looks, the loop or a worker of it: one question at a time
        self._rest_s = 0.0
        self._rest_until = 0.0
        self._unfit = False
        self._told = ""

    def job(self) -> JobRow | Unreadable:
        """See `reading.Source`."""
        number = self._commands.number
        return self._read(
            lambda: understood_job("pyslurm", self._worker.ask("job", job=int(number)), number), self._commands.job
        )

    def steps(self) -> tuple[ListedStep, ...] | Unreadable:
        """See `reading.Source`."""
        number = int(self._commands.number)
        return self._read(
            lambda: understood("pyslurm", self._worker.ask("steps", job=number), parsing.steps), self._commands.steps
        )

    def nodes(self, names: tuple[str, ...]) -> Mapping[str, ListedNode] | Unreadable:
        """See `reading.Source`."""
        if not names:
            return {}
        return self._read(
            lambda: understood("pyslurm", self._worker.ask("nodes", names=names), parsing.nodes),
            lambda: self._commands.nodes(names),
        )

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._worker.close()

    def _read(self, ours: Callable[[], T | Unreadable], theirs: Callable[[], T | Unreadable]) -> T | Unreadable:
        with self._lock:
            if not self._unfit and self._clock() >= self._rest_until:
                found = self._ask(ours)
                if not isinstance(found, Unreadable):
                    return found
        return theirs()

    def _ask(self, ours: Callable[[], T | Unreadable]) -> T | Unreadable:
        try:
            found = ours()
        except UnfitError as error:
            self._unfit = True
            self._note(f"pyslurm is not used, Slurm is read by its commands: {error}")
            return Unreadable(str(error))
        except LostError as error:
            self._commands.doubt()
            self._rest()
            self._note(
                f"pyslurm: {error}. Slurm is read by its commands, and pyslurm tried again in {self._rest_s:.0f} s"
            )
            return Unreadable(str(error))
        except DeclinedError as error:
            self._commands.doubt()  # most often slurmctld is away, which a ping tells before a read would
            return Unreadable(str(error))
        if self._told:
            self._say("pyslurm tells again")
            self._told = ""
        return found

    def _rest(self) -> None:
        now = self._clock()
        long_ago = now > self._rest_until + LONGEST_REST_S
        self._rest_s = REST_S if long_ago or not self._rest_s else min(2 * self._rest_s, LONGEST_REST_S)
        self._rest_until = now + self._rest_s

    def _note(self, text: str) -> None:
        if not self._told:
            self._say(text)
        self._told = text
