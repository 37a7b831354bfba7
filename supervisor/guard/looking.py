"""One look at a run from outside: lease, status, journal, and whether a write is taken. In a thread of its own: it may hang."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Lock, Thread

from policies.history import History
from policies.rules import Rules
from slurm.awaited import Awaited, is_awaited
from supervisor.fold import fold_all
from supervisor.guard.judge import Look
from supervisor.journal.following import Tail
from supervisor.journal.journal import JournalDamagedError
from supervisor.journal.lease import is_alive, read_holder
from supervisor.plan import held_until
from supervisor.rundir import RunDir
from supervisor.telling.heart import journal_takes_writes
from supervisor.telling.incident_facts import Known, waits

PROBE = "guard.tmp"
STATUS_MAX = 16_000_000


class Eye:
    """Looks at one run. `probes`: try a write too; not where the run directory is mounted to be read only."""

    def __init__(
        self, root: str, wall: Callable[[], float] = time.time, *, probes: bool = True, awaited: Awaited | None = None
    ) -> None:
        """`awaited`: who knows how the next job stands; default: Slurm, where it can be asked."""
        self._run, self._wall, self._probes = RunDir(root), wall, probes
        self._awaited = awaited or Awaited(self._run.root)
        self._tail = Tail(self._run.journal)
        self._history = History()

    def look(self) -> Look:
        """The run as it is now. Raises nothing but what is a fault of ours."""
        if not os.path.isdir(self._run.journal):
            return Look(there=False)
        history, unread = self._folded()
        if unread and not os.path.isdir(self._run.journal):
            return Look(there=False)  # it went while we read
        lease, dead = self._lease()
        status, held = self._status()
        unwritable = journal_takes_writes(self._run.journal, PROBE) if self._probes else ""
        seen = Look(lease=lease, dead=dead, status=status, history=history, unread=unread, unwritable=unwritable)
        if history is None:
            return seen
        over = dead is not False and self._is_over(history)
        between = self._is_between(history)
        lost = self._awaited.over(history.job.id, history.job.start) if between and history.job else ""
        return replace(seen, waits=waits(history, Known(held=held)), over=over, between=between, next_over=lost)

    def _folded(self) -> tuple[History | None, str]:
        try:
            again, entries = self._tail.more()
            self._history = fold_all(History() if again else self._history, entries)
        except JournalDamagedError as error:
            return None, str(error)
        except OSError as error:
            return None, error.strerror or type(error).__name__
        return self._history, ""

    def _lease(self) -> tuple[str, bool | None]:
        """(a value that changes with each renewal, is its holder dead as far as it can be told from this host)."""
        try:
            holder = read_holder(self._run.path("lease"))
        except OSError:
            return "", None
        if holder is None:
            return "", None
        here = holder.host == socket.gethostname()
        return f"{holder.host} {holder.pid} {holder.renewed}", not is_alive(holder, self._wall()) if here else None

    def _status(self) -> tuple[str, str]:
        """(a value that changes with each turn that is shown, why the gate holds the open plan for a person)."""
        try:
            with open(self._run.path("status.json"), "rb") as file:
                raw = json.loads(file.read(STATUS_MAX))
            return str(raw["at"]), str(raw["held"]) if raw["asks"] else ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "", ""

    def _is_over(self, history: History) -> bool:
        """Has it ended, or halted for longer than it holds its nodes?"""
        if history.ended and history.ended != "next-job":
            return True
        down = history.attempt is None or history.attempt.closed_at is not None
        return history.halted is not None and down and self._wall() >= held_until(history, _rules(history))

    def _is_between(self, history: History) -> bool:
        job = history.job
        asked = job is not None and is_awaited(self._run.root, job.id, job.start)
        return history.ended == "next-job" and asked


def _rules(history: History) -> Rules:
    try:
        return Rules.model_validate_json(history.rules) if history.rules else Rules()
    except ValueError:
        return Rules()  # of a later version: its times are not known


class Looker:
    """Has an eye look again and again in a daemon thread; `newest` says what it saw, and for how long it has hung."""

    def __init__(
        self, eye: Eye, every_s: float, hangs_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._eye, self._every_s, self._hangs_s, self._clock = eye, every_s, hangs_s, clock
        self._lock, self._over = Lock(), Event()
        self._seen: Look | None = None
        self._began_at = clock()
        Thread(target=self._work, name="relight-guard-eye", daemon=True).start()

    def newest(self) -> Look | None:
        """What was seen last; that it hangs, where a look takes too long; None before the first one."""
        with self._lock:
            long = self._clock() - self._began_at
            return Look(hangs_s=long) if long > self._hangs_s + self._every_s else self._seen

    def stop(self) -> None:
        """No more looks."""
        self._over.set()

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                seen = self._eye.look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may go well, and somebody is told
                seen = Look(fault=f"{type(error).__name__}: {error}"[:500])
            with self._lock:
                self._seen, self._began_at = seen, self._clock()
            self._over.wait(self._every_s)
