"""Reads files of a save for the controller: one child at a time, which is fed, heard, and ended when its time is over.

The agent itself never touches the save: a file system that hangs holds the child alone. Messages: docs/contracts.md,
section 4 (`read`, `read-stop`; `read-part`, `read-done`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

Message = dict[str, Any]

THREADS: Final = 4
"""Files that are read at a time; a spare has nothing else to do, and a store gives more to several."""

LONGEST_S: Final = 6 * 3600.0
"""Seconds that a child may live after it was last asked for something, whatever the controller says."""

AWAY_EXIT: Final = 3
"""How the child ends where the folder of the save is not to be seen."""

_CHILD: Final = "supervisor.agent.reading_child"
"""Not imported: the agent itself needs nothing of what it reads with."""

_GONE_S: Final = 2.0
_ID: Final = 64
_LINE: Final = 64 << 10
_ROOT: Final = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 2))


@dataclass(slots=True, eq=False)
class _Child:
    """One reading. `why` says why it was ended, once it was."""

    id: str
    root: str
    lines: list[bytes] = field(default_factory=list)
    process: Process | None = None
    timer: asyncio.TimerHandle | None = None
    ended: bool = False
    why: str = ""


class Reading:
    """What this node reads. `tell` sends a message to the controller; `threads` files at a time."""

    def __init__(self, node: str, tell: Callable[[Message], None], threads: int = THREADS) -> None:
        self._node = node
        self._tell = tell
        self._threads = threads
        self._child: _Child | None = None
        self._last: Process | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def obey(self, message: Message) -> None:
        """Do what a `read` or `read-stop` says; what makes no sense is left undone."""
        name = message.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= _ID:
            return
        if message.get("type") == "read-stop":
            if self._child is not None and self._child.id == name:
                self.stop("as asked")
            return
        root, fed, deadline_s = message.get("root"), _fed(message), message.get("deadline_s")
        if not isinstance(root, str) or not os.path.isabs(root) or "\0" in root or fed is None:
            return
        if not isinstance(deadline_s, int | float) or not deadline_s > 0:
            return
        child = self._child
        if child is None or child.id != name:
            child = self._begin(name, root)
        self._feed(child, fed, min(deadline_s, LONGEST_S))

    def stop(self, why: str) -> None:
        """End what is being read."""
        if self._child is not None:
            self._end(self._child, why)

    async def close(self) -> None:
        """End everything; does not wait for a child that hangs in the kernel."""
        self.stop("the agent ends")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _gone(self._last)

    def _begin(self, name: str, root: str) -> _Child:
        self.stop("another reading was asked for")
        child = self._child = _Child(name, root)
        task = asyncio.get_running_loop().create_task(self._serve(child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return child

    def _feed(self, child: _Child, line: bytes, deadline_s: float) -> None:
        if child.timer is not None:
            child.timer.cancel()
        child.timer = asyncio.get_running_loop().call_later(
            deadline_s, self._end, child, f"not done within {deadline_s:g} s"
        )
        if child.process is None:
            child.lines.append(line)
        elif child.process.stdin is not None:
            child.process.stdin.write(line)

    def _end(self, child: _Child, why: str) -> None:
        child.why = child.why or why
        if child.process is not None:
            _kill(child.process)
        self._over(child, away=False)

    def _over(self, child: _Child, *, away: bool) -> None:
        """Say once that a reading has ended."""
        if child.timer is not None:
            child.timer.cancel()
        if self._child is child:
            self._child = None
        if not child.ended:
            child.ended = True
            self._tell({"type": "read-done", "node": self._node, "id": child.id, "why": child.why, "away": away})

    async def _serve(self, child: _Child) -> None:
        if not await _gone(self._last):
            self._end(child, "the last reader hangs and can't be ended")
            return
        try:
            process = await self._start(child.root)
        except OSError as error:
            self._end(child, f"it could not be started: {error.strerror}")
            return
        self._last = child.process = process
        if child.ended:
            _kill(process)
        elif process.stdin is not None:
            process.stdin.writelines(child.lines)
        try:
            await self._hear(child, process)
        finally:
            _kill(process)

    async def _start(self, root: str) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the folder that the agent runs in is no place to import from
            "-m",
            _CHILD,
            root,
            str(self._threads),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=_LINE,
            process_group=0,  # not a session of its own: on a local cluster the session is the node
            env={**os.environ, "PYTHONPATH": _ROOT},
        )

    async def _hear(self, child: _Child, process: Process) -> None:
        """Pass its answers on until it ends."""
        out = process.stdout
        assert out is not None  # noqa: S101  asked for above
        while True:
            try:
                line = await out.readline()
                answer = json.loads(line) if line else None
            except ValueError:  # too long, or no JSON: it is not what we have started
                self._end(child, "it spoke nonsense")
                return
            if answer is None:
                break
            if not child.ended:
                self._tell({"type": "read-part", "node": self._node, "id": child.id, **answer})
        code = await process.wait()
        if not child.ended:
            child.why = child.why or f"it ended with {code}"
            self._over(child, away=code == AWAY_EXIT)


def _fed(message: Message) -> bytes | None:
    """What the child is told, a line; None when it makes no sense."""
    files, rate = message.get("files"), message.get("rate")
    if not isinstance(files, list) or not (rate is None or (isinstance(rate, int | float) and 0 < rate < 1e15)):
        return None
    wanted = []
    for one in files:
        if not isinstance(one, dict) or not isinstance(one.get("path"), str) or type(one.get("size")) is not int:
            return None
        sha256 = one.get("sha256")
        if sha256 is not None and not isinstance(sha256, str):
            return None
        wanted.append({"path": one["path"], "size": one["size"], "crc": one.get("crc") is True, "sha256": sha256})
    return json.dumps({"files": wanted, "rate": rate}, separators=(",", ":")).encode() + b"\n"


async def _gone(process: Process | None) -> bool:
    """Has it ended? One that was killed a moment ago is gone in a moment; one that hangs in the kernel stays."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_S):
                await process.wait()
    return process is None or process.returncode is not None


def _kill(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
