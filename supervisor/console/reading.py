"""Run directories as values: read, cached by what their files look like from outside, and never written to.

A journal of 76 days takes seconds to read the first time; then only what was added is read. Readings are shared by all
viewers, one at a time is made of a run, and a long one is followed by a rest four times as long: no crowd of viewers makes
the console busier than that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock

from policies.decisions import Recover
from policies.history import History
from supervisor.errors import UserError
from supervisor.fold import fold_all
from supervisor.journal import journal
from supervisor.journal.entries import Decided, Stamped, Withdrawn
from supervisor.journal.following import Tail
from supervisor.journal.lease import is_alive, read_holder
from supervisor.rundir import RunDir
from supervisor.settings import Settings, frozen
from supervisor.telling.answers_told import Sayings, sayings
from supervisor.telling.copies import known_saves
from supervisor.telling.incident_facts import Known
from supervisor.telling.record import known_of, watched_or_not
from supervisor.telling.status import Status, read_status

SCHEMA = 1
"""Of every document; it rises when a field changes its meaning."""
FRESH_S = 0.5
"""So old may a reading be that answers a question; a person does not see the difference."""
REST = 4.0
RESCAN_S = 2.0
RUNS_MAX = 256
PLANS_KEPT = 64
_NAME = re.compile(r"[^A-Za-z0-9_-]+")

Looks = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change (ns) of files: while they are the same, so is what is in them."""


class UnreadableError(Exception):
    """A run's directory cannot be read, or not be understood; one line for people."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One run as its directory shows it. `now` is wall seconds; `plans` are the newest that were ever open, by digest."""

    run: RunDir
    settings: Settings
    history: History
    status: Status | None
    alive: bool
    now: float
    plans: Mapping[str, Recover] = field(default_factory=dict)
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    sayings: Sayings = field(default_factory=dict)

    @property
    def known(self) -> Known:
        """What stories may use."""
        held = self.status.held if self.status and self.status.asks else ""
        known = known_of(self.settings.shape(), self.now, held)
        known = watched_or_not(known, self.run, self.settings, self.status, alive=self.alive)
        if self.status is not None:
            known = replace(known, checkpoints=known_saves(self.status.view))
        return known


def looks(paths: Iterable[str]) -> Looks:
    """How files look from outside; one that is not there is left out."""
    seen = []
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:
            continue
        seen.append((os.path.basename(path), found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(seen)


def plans_of(
    entries: Iterable[Stamped], plans: Mapping[str, Recover], withdrawn: Mapping[str, str]
) -> tuple[dict[str, Recover], dict[str, str]]:
    """The newest plans by digest, oldest first, and why those were withdrawn that were; added to what was known."""
    plans, withdrawn = dict(plans), dict(withdrawn)
    for stamped in entries:
        entry = stamped.entry
        if isinstance(entry, Decided) and entry.digest and isinstance(entry.decision, Recover):
            plans.pop(entry.digest, None)
            plans[entry.digest] = entry.decision
        elif isinstance(entry, Withdrawn) and entry.digest:
            withdrawn[entry.digest] = entry.why
    kept = dict(list(plans.items())[-PLANS_KEPT:])
    return kept, {digest: why for digest, why in withdrawn.items() if digest in kept}


class Follower:
    """Reads one run again and again. Safe from several threads: one reads, the others get what was read last."""

    def __init__(
        self, root: str, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self.run = RunDir(root)
        self._wall, self._ticks = wall, ticks
        self._lock = Lock()
        self._tail = Tail(self.run.journal)
        self._journal: tuple[Looks, History, dict[str, Recover], dict[str, str]] | None = None
        self._sayings: Sayings = {}
        self._status: tuple[Looks, Status | None] | None = None
        self._settings: Settings | None = None
        self._last: Reading | UnreadableError | None = None
        self._read_at = self._rested_at = 0.0

    def read(self, *, fresh: bool = False) -> Reading:
        """The run, at most FRESH_S old; `fresh`: as it is now, but for the rest. Raises UnreadableError."""
        last = self._last
        if last is None or self._ticks() >= self._read_at + (0.0 if fresh else FRESH_S):
            # Whoever comes while another reads takes what was read last; the first ones have nothing else to take.
            if self._lock.acquire(blocking=last is None or fresh):
                try:
                    last = self._last = self._again()
                    self._read_at = self._ticks()
                finally:
                    self._lock.release()
            else:
                last = self._last
        if isinstance(last, UnreadableError):
            raise UnreadableError(str(last))
        assert last is not None  # noqa: S101 - read above
        return last

    def _again(self) -> Reading | UnreadableError:
        try:
            if self._settings is None:
                self._settings = frozen(self.run.root)
            history, plans, withdrawn = self._folded()
            now = self._wall()
            holder = read_holder(self.run.path("lease"))
            alive = holder is not None and is_alive(holder, now)
            seen, said = self._seen(), self._sayings
            return Reading(self.run, self._settings, history, seen, alive, now, plans, withdrawn, said)
        except journal.JournalDamagedError as error:
            return UnreadableError(f"{self.run.journal}: {error}. See: relight runbook journal-damaged")
        except (UserError, OSError, ValueError) as error:
            return UnreadableError(str(error).splitlines()[0] if str(error) else type(error).__name__)

    def _folded(self) -> tuple[History, dict[str, Recover], dict[str, str]]:
        before = self._journal
        if before is not None and self._ticks() < self._rested_at:
            return before[1:]
        now = looks(path for _, path in journal.segments(self.run.journal))
        if before is None or before[0] != now:
            began = self._ticks()
            again, entries = self._tail.more()
            history, plans, withdrawn = (History(), {}, {}) if again or before is None else before[1:]
            self._sayings = sayings(entries, None if again else self._sayings)
            before = self._journal = (now, fold_all(history, entries), *plans_of(entries, plans, withdrawn))
            self._rested_at = self._ticks() + REST * (self._ticks() - began)
        return before[1:]

    def _seen(self) -> Status | None:
        now = looks([self.run.path("status.json")])
        if self._status is None or self._status[0] != now:
            self._status = (now, read_status(self.run))
        return self._status[1]


class Runs:
    """The runs at the places that were given: run directories, or folders that hold some. New ones are found as they come."""

    def __init__(self, places: tuple[str, ...], ticks: Callable[[], float] = time.monotonic) -> None:
        self._places = tuple(os.path.abspath(place) for place in places)
        self._ticks = ticks
        self._lock = Lock()
        self._found: dict[str, Follower] = {}
        self._scanned_at: float | None = None

    def all(self) -> dict[str, Follower]:
        """By the name that each has here. A name stays with the directory that had it first."""
        with self._lock:
            if self._scanned_at is None or self._ticks() >= self._scanned_at + RESCAN_S:
                self._scan()
                self._scanned_at = self._ticks()
            return dict(self._found)

    def find(self, name: str) -> Follower | None:
        """The run of that name; the name is looked up, never joined to a path."""
        return self.all().get(name)

    def _scan(self) -> None:
        roots = sorted({root for place in self._places for root in _runs_in(place)})[:RUNS_MAX]
        known = {follower.run.root: name for name, follower in self._found.items()}
        found = {name: self._found[name] for root, name in known.items() if root in roots}
        for root in roots:
            if root not in known:
                name = _name_of(root)
                free = name if name not in found else f"{name}-{blake2b(root.encode(), digest_size=3).hexdigest()}"
                found[free] = Follower(root)
        self._found = dict(sorted(found.items()))


def _is_run(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "journal")) and os.path.isfile(os.path.join(path, "settings.json"))


def _runs_in(place: str) -> list[str]:
    if _is_run(place):
        return [place]
    try:
        below = sorted(os.listdir(place))
    except OSError:
        return []  # not there yet: the first run makes it
    return [path for name in below if _is_run(path := os.path.join(place, name))]


def _name_of(root: str) -> str:
    try:
        return frozen(root).run.name
    except UserError:
        return _NAME.sub("-", os.path.basename(root)).strip("-")[:64] or "run"
