"""The files of one save, moved by several threads under one limit of speed, with one account of how far it has come."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

from supervisor.checkpoints.manifest import FileEntry
from supervisor.checkpoints.objects.landing import Pace
from supervisor.checkpoints.reading.throttle import CancelledError, Throttle
from supervisor.checkpoints.reading.throttle import Pace as BytesPace

Progress = Callable[[int, int, str], None]
"""Called with the bytes that are done, all bytes, and what is being done; from any thread."""
SLOWEST: Final = 5e6
"""Bytes a second that one file must make where no limit holds it back, else it is given up and asked for again."""
SPARE_S: Final = 120.0
Move = Callable[[str, FileEntry, Pace, float], None]
"""Moves the file of this name, and reads it again; within so many seconds. Raises what is wrong."""


def no_progress(_done: int, _total: int, _what: str) -> None:
    """Nobody looks."""


class Carrier:
    """`pace`: the limit that holds for all that is read, of files and of their copies; others may share it.

    `rate`: what that limit may come to at the least, bytes a second, for how long a file may take; None: no limit.
    """

    def __init__(self, threads: int, pace: BytesPace, rate: float | None, progress: Progress) -> None:
        self._threads = threads
        self._pace = pace
        self._rate = rate
        self._progress = progress

    def carry(self, files: Mapping[str, FileEntry], move: Move, what: str) -> None:
        """Move all of them, the largest first. Raises what the first that failed raised; the others are then given up."""
        throttle = Throttle(self._pace)
        account = _Account(sum(entry.size for entry in files.values()), self._progress, what)

        def one(name: str) -> None:
            entry = files[name]
            passed = [0]

            def pace(count: int) -> None:
                throttle.take(count)
                # Each byte is read twice: at its source, and where it has landed. The first time it counts.
                account.add(min(passed[0] + count, entry.size) - min(passed[0], entry.size))
                passed[0] += count

            # A limit is shared, so this file may get no more than one thread's share of a half of it, for both readings.
            slowest = min(SLOWEST, self._rate / self._threads / 2) if self._rate else SLOWEST
            move(name, entry, pace, SPARE_S + 2 * entry.size / slowest)
            account.add(entry.size - min(passed[0], entry.size))

        ordered = sorted(files, key=lambda name: (-files[name].size, name))
        with ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="archive") as pool:
            futures = [pool.submit(one, name) for name in ordered]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                throttle.cancel()
                pool.shutdown(wait=True, cancel_futures=True)
        failed = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
        for error in sorted(failed, key=lambda error: isinstance(error, CancelledError)):
            if isinstance(error, CancelledError):
                raise OSError(errno.ECANCELED, "given up: this process reads no more")
            raise error


class _Account:
    def __init__(self, total: int, progress: Progress, what: str) -> None:
        self._total = total
        self._progress = progress
        self._what = what
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            done = self._done
        self._progress(done, self._total, self._what)
