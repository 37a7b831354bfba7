"""A deadline for calls that take none: a hung mount or a silent server holds a thread, never the caller.

A blocked system call can't be taken back. So the work runs on a daemon thread; at the deadline the caller goes on, and
the thread is used again when its call returns. Threads that hang are bounded; past the bound, calls wait for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from supervisor.checkpoints.objects.port import NotYet

T = TypeVar("T")
MOST: Final = 32
"""Threads of one store."""
IDLE_S: Final = 5.0
"""Seconds after which a thread that has nothing to do ends: a store that nobody uses any more holds none."""


class LateError(Exception):
    """The deadline has passed before the step that others would see; it was not taken."""


class Until:
    """The moment after which nothing new is begun."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s

    @property
    def left_s(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    def check(self) -> None:
        """Raises LateError when it has passed."""
        if self.left_s <= 0:
            raise LateError


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Until], T], until: Until) -> None:
        self.work = work
        self.until = until
        self.done = threading.Event()
        self.answer: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.until.check()
            self.answer = self.work(self.until)
        except BaseException as error:  # noqa: BLE001 - it is the caller's, who waits on another thread
            self.error = error
        self.done.set()


class Patience:
    """Runs the calls of one store. `most`: how many may hang or run at once. A forked child needs one of its own."""

    def __init__(self, most: int = MOST, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._most = most
        self._jobs: SimpleQueue[_Job[object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._pending = 0

    def call(self, what: str, work: Callable[[Until], T], within_s: float) -> T | NotYet:
        """Do it, or answer NotYet at the deadline. Raises what `work` raises."""
        until = Until(within_s)
        job = _Job(work, until)
        self._submit(job)
        if not job.done.wait(until.left_s) and not job.done.is_set():
            return NotYet(f"{what}: no answer within {within_s:g} s")
        if isinstance(job.error, LateError):
            return NotYet(f"{what}: not done within {within_s:g} s")
        if job.error is not None:
            raise job.error
        return job.answer  # type: ignore[return-value]  # no error: it is the answer

    def _submit(self, job: _Job[T]) -> None:
        with self._lock:
            self._pending += 1
            grow = self._pending > self._threads and self._threads < self._most
            self._threads += grow
        self._jobs.put(job)  # type: ignore[arg-type]  # the queue holds jobs of any answer
        if grow:
            threading.Thread(target=self._serve, name="objects", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._pending < self._threads:  # else a job is on its way to this thread
                        self._threads -= 1
                        return
                continue
            job.run()
            del job  # and what it holds, while this thread waits for the next
            with self._lock:
                self._pending -= 1
