"""The job that was asked for to follow another: what was noted of it in the run directory, and how it stands in Slurm."""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable
from typing import Final

from slurm.asking import Commands
from slurm.calls import clean_environment
from slurm.cluster import NotKnown, Unreadable
from slurm.parsing import JobRow
from slurm.states import Phase

ASKING: Final = ".asking"
"""Behind the name of a note: the job is about to be requeued, and whoever asks for it may end with it."""
NOTE_MAX: Final = 1 << 20
"""Bytes of a note; it names the nodes that were left out."""
EVERY_S: Final = 30.0
"""How often Slurm is asked for a job that may wait for days. Chosen."""
NOT_TAKEN_S: Final = 900.0
"""So long a next job may run before it takes the run up: an image is pulled, a file system mounted. Then its batch host is lost,
or its script hangs. Chosen.
"""
CALL_S: Final = 15.0
"""squeue itself gives up after 9 to 10 s when slurmctld is away."""


def note_of(run_dir: str, job: str, start: str) -> str:
    """Where it is noted which job follows this start of a job."""
    return f"{run_dir}/nodes/next-{job}-{start.replace(':', '')}.json"


def asked_for(run_dir: str, job: str, start: str) -> str:
    """Which job was asked for to follow this one, or "requeued"; empty where none was, "?" where that can't be read."""
    try:
        return _read(note_of(run_dir, job, start))[0]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "?"  # somebody has asked, and what for can't be read: not asked again


def is_awaited(run_dir: str, job: str, start: str) -> bool:
    """Was a next job asked for, as far as can be seen by whoever is not in this one?"""
    return asked_for(run_dir, job, start) != "" or os.path.exists(note_of(run_dir, job, start) + ASKING)


def left_out(run_dir: str, job: str, start: str) -> frozenset[str]:
    """The nodes that this run itself left out when it asked for this start of this job; none where that isn't known."""
    before = f"{run_dir}/nodes/next-{job}-"
    newest, found = "", frozenset[str]()
    for path in glob.glob(f"{glob.escape(run_dir)}/nodes/next-*.json"):
        try:
            following, without = _read(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        requeued = following == "requeued" and path.startswith(before)
        # What was said at a requeue stands until the next one; it replaces what the job was submitted with.
        at = path.removeprefix(before) if requeued else ""
        earlier = not start or at < f"{start.replace(':', '')}.json"
        if (requeued and earlier and at > newest) or (following == job and not newest):
            newest, found = at, without
    return found


def _read(path: str) -> tuple[str, frozenset[str]]:
    """Which job follows, and whom we have left out of it. Raises OSError, ValueError, KeyError, TypeError, RecursionError."""
    with open(path, "rb") as file:
        found = json.loads(file.read(NOTE_MAX))
    without = found.get("without", ()) if isinstance(found, dict) else ()
    return str(found["next"])[:64], frozenset(n for n in without if isinstance(n, str))


class Awaited:
    """Asks Slurm, now and then, whether the job that is to take a run up still can."""

    def __init__(
        self,
        run_dir: str,
        ask: Callable[[str], JobRow | Unreadable] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask`: a job by its id; default: squeue does."""
        self._run_dir = run_dir
        self._ask = ask or (lambda job: Commands(job, clean_environment(os.environ), CALL_S).job())
        self._clock = clock
        self._asked: tuple[str, str, float] | None = None
        self._over = ""
        self._runs: tuple[str, float] | None = None

    def over(self, job: str, start: str) -> str:
        """How the job that follows this start of a job has ended ("job 17 is CANCELLED"); empty where it has not, or nobody knows.

        Said of a run that still waits for it: what has ended then has not taken it up, and what has run for NOT_TAKEN_S will not.
        Slurm forgets a job that is over after MinJobAge (300 s by default): what was seen of one stays, and of one that nobody
        saw it is said that it is not known.
        """
        now = self._clock()
        if self._asked is None or self._asked[:2] != (job, start):
            self._over = ""
        elif now - self._asked[2] < EVERY_S:
            return self._over
        self._asked = (job, start, now)
        following = asked_for(self._run_dir, job, start)
        if following == "?" or not is_awaited(self._run_dir, job, start):  # the end of this job says nothing of another
            return self._over
        one = following if following.isascii() and following.isdigit() else job  # else it is the same job, requeued
        seen = self._ask(one)
        if isinstance(seen, JobRow):
            self._over = f"job {one} is {seen.state}" if seen.phase is Phase.ENDED else self._idle(one, seen, now)
        elif isinstance(seen, NotKnown) and not self._over:
            self._over = f"job {one} is not known to Slurm any more"
        return self._over

    def _idle(self, one: str, seen: JobRow, now: float) -> str:
        """Has it been seen to run for too long? By our own clock; once it takes the run up nobody asks any more."""
        runs = f"{one} {seen.start}" if seen.phase is Phase.RUNNING else ""
        if self._runs is None or self._runs[0] != runs:
            self._runs = (runs, now)
        late = bool(runs) and now - self._runs[1] >= NOT_TAKEN_S
        return f"job {one} has run for more than {NOT_TAKEN_S / 60:.0f} min" if late else ""
