"""Does the file system where the run will live keep the promises that a run stands on? Measured there, and judged.

Exclusive creation (epochs, claims, seals), replacing renames (pointers), locks (one agent a node), fsync (the journal),
and how soon others see what was written. The same trials serve several processes of one machine and all nodes of a job.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from supervisor.doctor import probe
from supervisor.doctor.meeting import SIGHT_S, Crew, Tried, children, meet
from supervisor.doctor.verdict import Check
from supervisor.telling.say import count, names, span

RACERS: Final = 4
SYNCS: Final = 30
SYNCS_S: Final = 5.0
SLOW_P50_S: Final = 0.1
SLOW_MAX_S: Final = 2.0
"""The journal waits for the disk before each effect: at 0.1 s a decision takes as long as a look at Slurm, at 2 s the
controller's heart (a write of 4 kB) is late."""
LATE_S: Final = 1.0
"""Agents look for a newer attempt about once a second; what is seen later makes them late."""
SKEW_S: Final = 1.0
"""Times of files are laid beside ours to a second when logs and stacks are put in order."""
_WANTED: Final = "a folder on a file system that all nodes share"


@dataclass(frozen=True, slots=True)
class Disk:
    """What one process measured. Times in seconds; `skew`: how far times of new files are ahead of our clock, at least."""

    kind: str
    syncs: tuple[float, ...]
    skew: float
    error: str = ""


@contextmanager
def scratch(folder: str) -> Iterator[str]:
    """A folder of ours where the run will live: in it, or in the nearest one above that exists. Raises OSError."""
    there = os.path.abspath(folder)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    with tempfile.TemporaryDirectory(prefix=".relight-doctor-", dir=there, ignore_cleanup_errors=True) as inside:
        yield inside


def look(folder: str, crew: Crew | None = None) -> tuple[Check, ...]:
    """Measure and judge in a scratch folder, with a few processes of this machine. Takes about a second.

    `crew`: other processes, for a test of the trials themselves.
    """
    argv = (sys.executable, "-I", "-S", os.path.abspath(probe.__file__))
    mine = crew or partial(children, number=RACERS, argv=argv, env=dict(os.environ))
    try:
        tried = asyncio.run(meet(folder, RACERS, mine, name=_by_pid, more={"host": "127.0.0.1"}))
        disk = measure(folder)
    except OSError as error:
        text = f"{error.strerror or error}: {error.filename or folder}"
        if error.filename == sys.executable:
            return (Check("fs-create", "unknown", text, "a Python that this user may start"),)
        return (Check("fs-create", "bad", text, "a folder that you can write"),)
    return (race(tried), locks(tried), sight(tried), *judge_disk(disk))


def _by_pid(hello: object) -> str:
    pid = hello.get("pid") if isinstance(hello, dict) else None
    return f"process {pid}" if isinstance(pid, int) else ""


def measure(folder: str, fsync: Callable[[int], None] = os.fsync, clock: Callable[[], float] = time.time) -> Disk:
    """Write and sync 4 kB again and again; then see what time a new file gets. Raises OSError."""
    path = os.path.join(folder, "sync")
    taken: list[float] = []
    begin = time.monotonic()
    with open(path, "xb", buffering=0) as file:
        while len(taken) < SYNCS and time.monotonic() - begin < SYNCS_S:
            file.write(b"\0" * 4096)
            start = time.monotonic()
            fsync(file.fileno())
            taken.append(time.monotonic() - start)
        before = clock()
        os.utime(file.fileno())  # now, by the clock of the file system
        stamped = os.stat(file.fileno()).st_mtime
        after = clock()
    skew = stamped - after if stamped > after else stamped - before if stamped < before else 0.0
    return Disk(kind_of(folder), tuple(taken), skew)


def kind_of(folder: str, table: str = "/proc/self/mountinfo") -> str:
    """The type of the file system, as the kernel names it; "" where that can't be read."""
    best, kind = "", ""
    try:
        with open(table, encoding="utf-8", errors="replace") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                place = left.split(" ")[4].replace("\\040", " ")
                inside = place == "/" or f"{folder}/".startswith(f"{place}/")
                if inside and len(place) >= len(best):
                    best, kind = place, right.split(" ")[0]
    except (OSError, IndexError):
        return ""
    return kind


# --- verdicts ------------------------------------------------------------------------------------------------------


def race(tried: Tried, name: str = "fs-create", what: str = "process") -> Check:
    """Of all who want the same new name exactly one may get it."""
    wrong = _not_tried(tried, name, "create", 2)
    if wrong:
        return wrong
    many = [names for names in tried.wins if len(names) > 1]
    none = [names for names in tried.wins if not names]
    text = f"{count(len(tried.wins), 'name')} wanted by {count(len(tried.peers), what, _many(what))} at once"
    right = f"{_WANTED} and where O_EXCL excludes; on this one two controllers could both believe that they are the one"
    if many:
        return Check(name, "bad", f"{text}: {names(many[0])} all got the same one", right)
    if none and not tried.lost:
        return Check(name, "bad", f"{text}: {count(len(none), 'name')} went to nobody", right)
    if none:
        return Check(name, "unknown", f"{text}; {names(sorted(tried.lost))} fell silent", "try again")
    return Check(name, "ok", f"{text}: each went to one")


def locks(tried: Tried, name: str = "fs-lock", what: str = "process") -> Check:
    """A lock that is held must be refused to all others, and a free one given."""
    wrong = _not_tried(tried, name, "lock", 1)
    if wrong:
        return wrong
    text = f"a lock was tried by {count(len(tried.peers), what, _many(what))}"
    right = f"{_WANTED} with locks (Lustre: mount option flock): one agent a node stands on them"
    if tried.got_held:
        return Check(name, "bad", f"{text}: {names(tried.got_held)} got one that was held", right)
    if tried.refused_free:
        return Check(name, "bad", f"{text}: {names(tried.refused_free)} was refused one that nobody held", right)
    return Check(name, "ok", f"{text}: refused while it was held, given when it was free")


def sight(tried: Tried, name: str = "fs-sight", what: str = "process") -> Check:
    """How soon do others see a file that is new, and one that was replaced?"""
    wrong = _not_tried(tried, name, "read", 1)
    if wrong:
        return wrong
    blind = sorted(one for one, seconds in tried.sight.items() if seconds is None)
    right = f"{_WANTED}, with caches that let go within a second (NFS: mount options actimeo=1, lookupcache=positive)"
    if blind:
        return Check(name, "bad", f"{names(blind)} did not see a new or replaced file within {SIGHT_S:.0f} s", right)
    seen = [seconds for seconds in tried.sight.values() if seconds is not None]
    if not seen:
        return Check(name, "unknown", "nobody answered", "try again")
    text = f"new and replaced files are seen by {count(len(seen), what, _many(what))} within {max(seen):.3f} s"
    return Check(name, "warn", text, right) if max(seen) > LATE_S else Check(name, "ok", text)


def judge_disk(disk: Disk) -> tuple[Check, Check]:
    """How long fsync takes, and what time new files get."""
    kind = disk.kind or "type not told"
    middle, worst = statistics.median(disk.syncs), max(disk.syncs)
    text = f"{kind}: 4 kB in {middle * 1000:.1f} ms, at worst {worst * 1000:.1f} ms ({count(len(disk.syncs), 'try', 'tries')})"
    slow = middle > SLOW_P50_S or worst > SLOW_MAX_S
    right = "a faster file system for --run-dir; saves can lie elsewhere ([checkpoints] dir)"
    sync = Check("fs-sync", "warn", text, right) if slow else Check("fs-sync", "ok", text)
    if abs(disk.skew) > SKEW_S:
        far = f"files get times that are {span(abs(disk.skew))} {'ahead of' if disk.skew > 0 else 'behind'} our clock"
        return sync, Check(
            "fs-times", "warn", far, "one source of time for the file servers and all nodes (chrony, ntp)"
        )
    return sync, Check("fs-times", "ok", f"times of new files are within {SKEW_S:.0f} s of our clock")


def _not_tried(tried: Tried, name: str, what: str, least: int) -> Check | None:
    """What the file system refused is bad; a trial with too few peers has shown nothing."""
    refused = tried.errors.get(what)
    if refused:
        who = sorted(refused)
        return Check(name, "bad", f"{names(who)}: {refused[who[0]]}", f"{_WANTED}, and that lets you do this")
    if len(tried.peers) - len(tried.lost) < least:
        lost = f"; {names(sorted(tried.lost))} fell silent" if tried.lost else ""
        return Check(name, "unknown", f"too few took part{lost}", "try again")
    return None


def _many(one: str) -> str:
    return f"{one}es" if one.endswith("s") else f"{one}s"
