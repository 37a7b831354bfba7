"""The kernel's log as it is written: /dev/kmsg where it may be read, else the journal, else a file that was named.

The kernel stamps its messages with a clock of its own that nothing corrects: after weeks it is off by minutes. So what is
read live is placed between the last look and this one, and only what was there before is placed by its stamp.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from supervisor.agent.health.results import Verdict, healthy, unknown
from supervisor.evidence.tail import RECORDS, Follows, Kmsg, Line, Tail

RING: Final = "/dev/kmsg"

DRIFT: Final = 1e-4
"""Seconds a second by which the kernel's clock may run apart from the monotonic one: ntpd gives up at 5e-4, crystals keep 1e-4."""

JOURNAL: Final = ("journalctl", "--dmesg", "--follow", "--output=json", "--lines=1000", "--no-pager", "--quiet")

_READ: Final = 1 << 20
_END_S: Final = 1.0
_AGAIN_S: Final = 30.0
"""Seconds before a journalctl that has ended is started again."""


class KernelLog(Follows, Protocol):
    """A log that also says whether it can be read."""

    def verdict(self) -> Verdict:
        """Can it be read?"""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Ring:
    """The kernel's ring of messages. `wall` and `monotonic` give seconds by this machine's clocks."""

    def __init__(
        self,
        path: str = RING,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._ring = Kmsg(path)
        self._wall = wall
        self._monotonic = monotonic
        self._caught_up: float | None = None  # when the ring was last read to its end, monotonic seconds

    def look(self) -> list[Line]:
        """See Follows; every line has its wall time."""
        now = self._monotonic()
        lines = self._ring.look()
        boot = self._wall() - self._monotonic()
        timed = [self._timed(line, boot) for line in lines]
        if self._ring.is_open and len(lines) < RECORDS:
            self._caught_up = now
        return timed

    def losses(self) -> list[str]:
        """See Follows."""
        return self._ring.losses()

    def verdict(self) -> Verdict:
        """See KernelLog."""
        why = may_read(self.path)
        return unknown(f"no kernel log: {why}") if why else healthy(f"{self.path} is followed")

    def close(self) -> None:
        """See KernelLog."""
        self._ring.close()

    def _timed(self, line: Line, boot: float) -> Line:
        now = self._monotonic()
        told = now if line.since_boot is None else line.since_boot
        if self._caught_up is None:
            return Line(line.text, None, 0.0, told, boot + told, DRIFT * now)
        at = min(max(told, self._caught_up), now)
        return Line(line.text, None, 0.0, told, boot + at, 0.0)


class Journal:
    """The kernel's messages as journald keeps them, from a journalctl that follows."""

    path = "journal"

    def __init__(self, argv: Sequence[str] = JOURNAL, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._argv = list(argv)
        self._monotonic = monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._rest = b""
        self._cursor = ""
        self._ended = ""
        self._losses: list[str] = []

    def look(self) -> list[Line]:
        """See Follows; what is no message of the journal is passed over."""
        if self._process is None and not self._start():
            return []
        process = self._process
        if process is None or process.stdout is None:
            return []
        try:
            data = os.read(process.stdout.fileno(), _READ)
        except BlockingIOError:
            return []
        if not data:
            self._stop("journalctl ended")
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _READ:
            self._rest = b""
        return [line for line in map(self._line, whole) if line is not None]

    def losses(self) -> list[str]:
        """See Follows."""
        told, self._losses = self._losses, []
        return told

    def verdict(self) -> Verdict:
        """See KernelLog. Who may not read the journal is shown nothing, and told nothing of it."""
        if self._process is None:
            return unknown(f"no kernel log: {self._ended or 'journalctl has not been started yet'}")
        if not self._cursor:
            return unknown("no kernel log: the journal shows no message of the kernel; this user may not read it")
        return healthy("the journal is followed")

    def close(self) -> None:
        """See KernelLog."""
        self._stop("let go")

    def _start(self) -> bool:
        now = self._monotonic()
        if self._started and now - self._started < _AGAIN_S:
            return False
        self._started = now
        after = [f"--after-cursor={self._cursor}"] if self._cursor else []
        try:
            self._process = subprocess.Popen(
                [*self._argv, *after],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            self._ended = f"{self._argv[0]}: {error.strerror}"
            return False
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
        return True

    def _stop(self, why: str) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._ended = why
        self._rest = b""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that a dead disk holds is left behind
            process.wait(_END_S)

    def _line(self, raw: bytes) -> Line | None:
        try:
            entry = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict):
            return None
        text, stamp, cursor = _text(entry.get("MESSAGE")), entry.get("__REALTIME_TIMESTAMP"), entry.get("__CURSOR")
        if isinstance(cursor, str):
            self._cursor = cursor[:1024]
        if text is None or not isinstance(stamp, str) or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 19):
            return None
        return Line(text, None, 0.0, None, int(stamp) / 1e6, 0.0)


class Written:
    """A kernel log that something else writes to a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._tail = Tail(path)
        self._why = "not looked at yet"

    def look(self) -> list[Line]:
        """See Follows. Whether it can be read is noted here: a file may hang, and this is not the agent's own loop."""
        self._why = may_read(self.path)
        return self._tail.look()

    def losses(self) -> list[str]:
        """See Follows."""
        return self._tail.losses()

    def verdict(self) -> Verdict:
        """See KernelLog."""
        return unknown(f"no kernel log: {self._why}") if self._why else healthy(f"{self.path} is followed")

    def close(self) -> None:
        """See KernelLog."""


class Nothing:
    """No kernel log can be read here; it is said, once."""

    path = "kernel"

    def __init__(self, why: str) -> None:
        self._why = why

    def look(self) -> list[Line]:
        """See Follows."""
        return []

    def losses(self) -> list[str]:
        """See Follows."""
        return []

    def verdict(self) -> Verdict:
        """See KernelLog."""
        return unknown(f"no kernel log: {self._why}")

    def close(self) -> None:
        """See KernelLog."""


def find(setting: str, ring: str = RING, journal: Sequence[str] = JOURNAL) -> KernelLog:
    """The kernel log by `health.kernel_log`: "" finds the ring or the journal, "none" is nothing, else it is a path."""
    if setting == "none":
        return Nothing("health.kernel_log is none")
    if setting:
        return Ring(setting) if _is_device(setting) else Written(setting)
    why = may_read(ring)
    if not why:
        return Ring(ring)
    return Journal(journal) if shutil.which(journal[0]) else Nothing(f"{why}, and there is no {journal[0]}")


def may_read(path: str) -> str:
    """Why a file can't be opened; empty when it can. Where the kernel restricts dmesg, opening the ring is refused."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


class Follow:
    """The check that tells whether the kernel log can be read."""

    names = ("kernel-log",)

    def __init__(self, log: KernelLog) -> None:
        self._log = log

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        return {"kernel-log": self._log.verdict()}


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def _text(value: Any) -> str | None:
    """MESSAGE is a text, or a list of bytes where it is none in UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return None
