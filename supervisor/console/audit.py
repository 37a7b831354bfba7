"""The audit log: JSON lines of who asked for what, when, from where, and what came of it. Mode 0600, only ever added to."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

from supervisor.console.limits import Buckets

REFUSALS_A_SECOND = 1.0
REFUSALS_AT_ONCE = 100.0
"""A flood of refused calls is written at this rate, with the number of those left out: it must not fill the disk."""


def default_path() -> str:
    """relight/console-audit.jsonl below the state of this user."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "relight", "console-audit.jsonl")


class Audit:
    """One file. `done` raises OSError: what can't be put on record is not done."""

    def __init__(
        self, path: str, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        self._path, self._wall = path, wall
        self._lock = Lock()
        self._buckets = Buckets(REFUSALS_A_SECOND, REFUSALS_AT_ONCE, ticks)
        self._left_out: Counter[str] = Counter()
        self._write({"what": "start", "pid": os.getpid()})

    def done(self, who: str, source: str, what: str, outcome: str, **more: object) -> None:
        """Put one on record. Raises OSError."""
        self._write({"who": who, "from": source, "what": what, "outcome": outcome, **more})

    def refused(self, who: str, source: str, what: str, outcome: str) -> None:
        """Put a refused call on record, as far as there is room; never raises, since it is refused either way."""
        if not self._buckets.of(
            who
        ).take():  # each by itself: a flood of strangers hides nothing that a token has tried
            self._left_out[who] += 1
            return
        left_out = self._left_out.pop(who, 0)
        more = {"left_out": left_out} if left_out else {}
        try:
            self._write({"who": who, "from": source, "what": what, "outcome": outcome, **more})
        except OSError:
            self._left_out[who] += left_out + 1

    def _write(self, row: dict[str, object]) -> None:
        line = json.dumps({"schema": 1, "at": round(self._wall(), 3), **row}).encode() + b"\n"
        with self._lock:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError("a line of the audit log was written in part")
            finally:
                os.close(descriptor)
