"""The process that reads Slurm with pyslurm (`native_worker`): started when asked, killed when late, and started again."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from slurm import native_worker

TRIED: Final[Mapping[int, str]] = {44: "25.11"}
"""Releases of Slurm with which this has been run, by the number of its library's interface (META, API_CURRENT). pyslurm
rebuilds Slurm's inner structures: with another release than its own it reads memory that means something else."""

_MOST: Final = 1 << 26  # bytes of one answer; 200,000 nodes fit


class UnfitError(Exception):
    """There is no such worker here, and there will be none: no pyslurm, or a version that was not tried."""


class LostError(Exception):
    """It was late, has died or spoke nonsense. It is gone; the next one who asks starts another."""


class DeclinedError(Exception):
    """It lives, and says why it has no answer."""


def command(python: str = "") -> tuple[str, ...]:
    """How a worker is started; `python`: one that has pyslurm, ours by default."""
    return (python or sys.executable, "-P", os.path.abspath(native_worker.__file__))


class Worker:
    """One process at most. Not for several threads at once."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 10.0) -> None:
        """`deadline_s` for one answer; the first one, with Python and its imports, has twice that."""
        self._argv = list(argv)
        self._env = dict(env)
        self._deadline_s = deadline_s
        self._child: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._asked = 0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._child is None else self._child.pid

    def ask(self, what: str, **more: object) -> str:
        """The text of its answer. Raises UnfitError, LostError, DeclinedError."""
        try:
            answer = self._answer({"ask": what} | more)
        except (UnfitError, LostError):
            self.close()
            raise
        if isinstance(answer.get("text"), str):
            return str(answer["text"])
        raise DeclinedError(str(answer.get("error", "no word")))

    def close(self) -> None:
        """End the process, if there is one, with all that it started."""
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            with suppress(subprocess.TimeoutExpired):
                child.wait(1.0)  # one that waits for a file system outlives its kill for a while
        if self._said is not None:
            self._said.close()
            self._said = None

    def _answer(self, request: dict[str, object]) -> dict[str, Any]:
        if self._child is None:
            self._begin()
        self._asked += 1
        line = json.dumps({"n": self._asked} | request).encode() + b"\n"
        answer = self._exchange(line, time.monotonic() + self._deadline_s)
        if answer.get("n") != self._asked:
            raise LostError(f"the worker answered {str(answer)[:200]}")
        return answer

    def _begin(self) -> None:
        """Start it and see which versions have met."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  for as long as the process
        try:
            self._child = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=self._env,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise UnfitError(str(error)) from error
        hello = self._exchange(b"", time.monotonic() + 2 * self._deadline_s)
        if "unfit" in hello:
            raise UnfitError(str(hello["unfit"]))
        release = TRIED.get(library) if isinstance(library := hello.get("library"), int) else None
        built = hello.get("built")
        built_for = ".".join(map(str, built[:2])) if isinstance(built, list) else ""
        if release is None or hello.get("schema") != 1 or release != built_for:
            raise UnfitError(f"it was built for Slurm {built}, and has loaded a library with the interface {library}")

    def _exchange(self, line: bytes, until: float) -> dict[str, Any]:
        """Write a line, read a line. Raises LostError."""
        child = self._child
        assert child is not None  # noqa: S101  both were asked for
        assert child.stdin is not None  # noqa: S101
        assert child.stdout is not None  # noqa: S101
        reads, writes = child.stdout.fileno(), child.stdin.fileno()
        os.set_blocking(writes, False)  # many names fill the pipe of one that hangs
        poll = select.poll()
        poll.register(reads, select.POLLIN)
        if line:
            poll.register(writes, select.POLLOUT)
        said = bytearray()
        while not said.endswith(b"\n"):
            ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
            if not ready:
                raise LostError("the worker did not answer in time")
            for one, _ in ready:
                if one == writes:
                    line = self._write(writes, line)
                    if not line:
                        poll.unregister(writes)
                    continue
                piece = os.read(reads, 1 << 20)
                said += piece
                if not piece or len(said) > _MOST:
                    raise LostError(self._end() if not piece else "the worker does not stop to speak")
        try:
            document = json.loads(said)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise LostError(f"the worker spoke nonsense: {bytes(said[:200])!r}")
        return document

    def _write(self, pipe: int, line: bytes) -> bytes:
        """What is left of the line."""
        try:
            return line[os.write(pipe, line) :]
        except BlockingIOError:
            return line
        except OSError:
            return b""  # it has closed its end; why, reading tells

    def _end(self) -> str:
        """How it died, and its last word."""
        assert self._child is not None  # noqa: S101  it has been read from
        try:
            code: object = self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            code = "no code yet"
        words: list[str] = []
        if self._said is not None:
            self._said.seek(0)
            words = self._said.read(65536).decode(errors="replace").strip().splitlines()
        return f"the worker ended with {code}: {words[-1][:300] if words else 'no word'}"
