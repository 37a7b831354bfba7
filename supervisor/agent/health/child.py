"""Ask another process, within a deadline, and never wait for it in the agent's own loop.

What a check looks at may hang in the kernel (a dead NFS server holds `statvfs` for hours), and a process that hangs there
can't even be killed. So each question is a thread and a child; while the last child of a check is still there, no second
one is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OUTPUT: Final = 64 << 10
"""Bytes of the output that are kept: its end, where a command says what it has found."""

_MOST: Final = 16 << 20
"""Bytes after which a command that prints and prints is ended."""

_LOOK_S: Final = 0.2
_GRACE_S: Final = 1.0
"""A thread that can't even start its child answers by itself so much later than the deadline, or not at all."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How it went. `code` is the exit code, negative for a signal; None: there is no answer, and `why` says why not."""

    code: int | None
    output: str = ""
    why: str = ""

    def record(self) -> dict[str, Any] | None:
        """The last line of the output that is a JSON object; None when there is none."""
        for line in reversed(self.output.splitlines()):
            if line.startswith("{"):
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError):
                    return None
                return found if isinstance(found, dict) else None
        return None


class Child:
    """A command that can be asked again and again. `env` is added to the agent's own."""

    def __init__(self, argv: Sequence[str], deadline_s: float, env: Mapping[str, str] | None = None) -> None:
        self._argv = list(argv)
        self._deadline_s = deadline_s
        self._env = {**os.environ, **(env or {})}
        self._asked: _Asked | None = None

    async def ask(self) -> Ran:
        """Run it once; answers within the deadline. A cancelled question takes its process with it."""
        if self._asked is not None and self._asked.is_alive():
            return Ran(None, why=f"the last look, {self._asked.age():.0f} s ago, hangs still and can't be ended")
        asked = self._asked = _Asked(self._argv, self._deadline_s, self._env)
        asked.start()
        try:
            async with asyncio.timeout(self._deadline_s + _GRACE_S):
                return await asyncio.shield(asked.answer)
        except TimeoutError:
            return Ran(None, why=f"no answer within {self._deadline_s:g} s")
        finally:
            asked.end()


class _Asked(threading.Thread):
    """One question. A daemon thread: one that hangs in the kernel must not keep the agent from ending."""

    def __init__(self, argv: list[str], deadline_s: float, env: dict[str, str]) -> None:
        super().__init__(name=f"ask {argv[0]}", daemon=True)
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Ran] = self._loop.create_future()
        self._argv = argv
        self._deadline_s = deadline_s
        self._env = env
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def age(self) -> float:
        """Seconds since it was asked."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """Kill what it has started, now or a moment later."""
        with self._lock:
            self._over = True
            if self._process is not None and self._process.returncode is None:
                _kill(self._process)

    def run(self) -> None:
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,  # not a session of its own: on a local cluster the session is the node
                env=self._env,
            )
        except (OSError, ValueError) as error:
            self._tell(Ran(None, why=f"could not be started: {error}"))
            return
        with self._lock:
            self._process = process
            if self._over:
                _kill(process)
        self._tell(self._hear(process))
        with self._lock:
            if process.returncode is None:
                _kill(process)
        process.wait()  # for as long as it hangs: the next look must know

    def _hear(self, process: subprocess.Popen[bytes]) -> Ran:
        until = self._began + self._deadline_s
        pipe = process.stdout
        assert pipe is not None  # noqa: S101  asked for above
        ear = select.poll()
        ear.register(pipe, select.POLLIN)
        kept, size, open_ = b"", 0, True
        with pipe:
            while open_ and size <= _MOST:
                left = until - time.monotonic()
                if left <= 0:
                    return Ran(None, _text(kept), f"no answer within {self._deadline_s:g} s")
                if ear.poll(1000 * min(left, _LOOK_S)):
                    data = os.read(pipe.fileno(), OUTPUT)
                    kept, size, open_ = (kept + data)[-OUTPUT:], size + len(data), bool(data)
                elif process.poll() is not None:
                    open_ = False  # what it has left behind still holds the pipe
        if open_:
            return Ran(None, _text(kept), f"printed more than {_MOST >> 20} MiB")
        try:
            return Ran(process.wait(max(0.0, until - time.monotonic())), _text(kept))
        except subprocess.TimeoutExpired:
            return Ran(None, _text(kept), f"no answer within {self._deadline_s:g} s")

    def _tell(self, ran: Ran) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over
            self._loop.call_soon_threadsafe(self._settle, ran)

    def _settle(self, ran: Ran) -> None:
        if not self.answer.done():
            self.answer.set_result(ran)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
