"""A beat for a dead man's switch, fetched while the loop turns and the journal's folder takes a write: silence is noticed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Event, Thread

import structlog

from supervisor.durable import show_whole
from supervisor.telling import carrying
from supervisor.telling.carrying import Outcome

STILL_S = 90.0
"""The loop turns, and writes status.json, at least every 30 s (`tick.HEARTBEAT_S`); three times that, and it stands."""
PROBE_BYTES = 4096


def journal_takes_writes(folder: str, name: str = "beat.tmp") -> str:
    """Why nothing can be written beside the journal's segments; empty where it can. May hang with its file system."""
    path = os.path.join(folder, name)
    try:
        show_whole(path, b"\0" * PROBE_BYTES)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


class Heart:
    """Beats from a thread of its own. `ticked` says that its owner is at work; `writes` says why it could not write."""

    def __init__(
        self,
        every_s: float,
        writes: Callable[[], str],
        beat: Callable[[], Outcome],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s, self._writes, self._beat, self._clock = every_s, writes, beat, clock
        self._ticked_at = clock()
        self._over = Event()
        self._well = True

    def start(self) -> None:
        """Begin to beat."""
        Thread(target=self._work, name="relight-heart", daemon=True).start()

    def stop(self) -> None:
        """No more beats."""
        self._over.set()

    def ticked(self) -> None:
        """The loop has turned."""
        self._ticked_at = self._clock()

    def once(self) -> str:
        """One beat, where there may be one; why there was none, else empty."""
        still = self._clock() - self._ticked_at
        why = f"the loop has not turned for {still:.0f} s" if still > STILL_S else self._writes()
        if not why:
            outcome = self._beat()
            why = "" if outcome.ok else outcome.why
        if bool(why) == self._well:  # one line for each change
            self._well = not why
            log = structlog.get_logger()
            log.error("heartbeat-failed", why=why) if why else log.info("heartbeat-well")
        return why

    def _work(self) -> None:
        while True:
            self.once()
            if self._over.wait(self._every_s):
                return


def heart_for(url: str, every_s: float, folder: str, deadline_s: float, probe: str = "beat.tmp") -> Heart | None:
    """The real one, over a run's journal folder; None without a URL."""
    if not url:
        return None
    return Heart(every_s, lambda: journal_takes_writes(folder, probe), lambda: carrying.fetch(url, deadline_s))
