"""What runs on each node: it hears the ranks, reads their logs, tells the controller, keeps evidence, ends old ranks.

    RELIGHT_NODE=n001 python -m supervisor.agent.agent RUN_DIR

It outlives a controller that crashes: it connects to the next one and tells it again where its ranks are. It ends with
SIGTERM, when the controller says that the run is over, or when the run directory is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from slurm.processes import look
from slurm.sockets import agent_lock, agent_socket, make_socket_dir
from supervisor.agent.board import Board
from supervisor.agent.endings import read_endings
from supervisor.agent.follow import Follower, ranks_here
from supervisor.agent.health.checks import checks_of
from supervisor.agent.health.plan import read_plan
from supervisor.agent.health.results import unknown
from supervisor.agent.health.rounds import Rounds
from supervisor.agent.kernel import Follow, KernelLog, Nothing, find
from supervisor.agent.pids import is_still, read_pids
from supervisor.agent.place import attempt_dir
from supervisor.agent.reading import Reading
from supervisor.agent.save_memory import SaveMemory
from supervisor.agent.stacks import Kept, Target, find_py_spy, keep_evidence
from supervisor.agent.sweep import sweep
from supervisor.agent.uplink import Message, Uplink

POLL_S: Final = 0.25
"""Seconds between two looks at the ranks' logs."""

_FOUND: Final = 1000
"""Findings of the attempt that a new controller is told again; it drops those that it knows."""

_LAST_WORDS_S: Final = 1.0
"""How long the end of a rank that does not speak may wait for the last lines of its log."""

_ENDINGS_S: Final = 1.0
"""Seconds between two looks for exit records: most ends are told by datagram, at once."""

_WEIGH_S: Final = 0.5
"""Seconds between two looks at the ranks' memory while they save; a look takes some 20 ms of a thread."""

_SWEEP_S: Final = 5.0
_RECEIVE: Final = 4 << 20
"""Bytes of room asked for on the ranks' socket; the kernel gives what it allows."""


class Agent:
    """One node's agent. `node` is the node's name, `run_dir` the absolute run directory."""

    def __init__(self, run_dir: str, node: str, poll_s: float = POLL_S) -> None:
        self._run_dir = run_dir
        self._node = node
        self._poll_s = poll_s
        self._attempt = 0
        self._beat_s = 2.0
        self._swept = 0  # the attempt of the newest sweep, so that an older one falls silent
        self._board = Board(self._is_launched)
        self._watched: list[str] = []
        self._found: deque[Message] = deque(maxlen=_FOUND)
        self._follower = Follower(run_dir, node, poll_s, self._board.speaks)
        self._health = Rounds(self._say_health, self._say_checked, lambda: self._attempt)
        self._kernel: KernelLog = Nothing("not looked for yet")
        self._uplink = Uplink(run_dir, self._hello, self._welcome, self._obey)
        self._reader = Reading(node, self._uplink.send)
        self._memory = SaveMemory()
        self._weighing = False
        self._reading = asyncio.Lock()
        self._over = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, sockets: str) -> None:
        """Serve until the run is over. An unexpected exception ends the agent; whoever started it starts it again."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        ranks = _bind(agent_socket(sockets, self._node))
        loop.add_reader(ranks.fileno(), self._read_ranks, ranks)
        for work in (self._uplink.run(), self._beats(), self._logs(), self._endings(), self._directory()):
            self._start(work)
        self._start(self._checks(sockets))
        try:
            await self._over.wait()
        finally:
            loop.remove_reader(ranks.fileno())
            ranks.close()
            with contextlib.suppress(OSError):
                os.unlink(agent_socket(sockets, self._node))
            for task in self._tasks:
                task.cancel()
            outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._reader.close()
            self._kernel.close()
            shutil.rmtree(self._baselines(sockets), ignore_errors=True)  # the directory goes with the run
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._over.set()  # run() then raises it
        else:
            self._tasks.discard(task)

    def _hello(self) -> Message:
        own = look(os.getpid())
        return {
            "node": self._node,
            "pid": os.getpid(),
            "start_ticks": own.start_ticks if own is not None else 0,
            "wall": time.time(),
            "monotonic": time.monotonic(),
        }

    # --- from the controller ---------------------------------------------------------------------------------------

    def _welcome(self, message: Message) -> None:
        beat_s = message.get("beat_s")
        if isinstance(beat_s, int | float) and 0.05 <= beat_s <= 60:
            self._beat_s = float(beat_s)
        self._reader.stop("another controller has come")
        self._newer(message.get("attempt"))
        for told in self._board.again(self._attempt):
            self._uplink.send({"type": "rank", "node": self._node, "m": told})
        for found in self._found:
            self._uplink.send(found)
        self._health.tell_all()
        self._beat(message.get("clock"))
        self._beat_now.set()  # the next one comes at the new pace

    def _obey(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "attempt":
            self._newer(message.get("attempt"))
            self._beat(message.get("clock"))
        elif kind == "end":
            self._end(message.get("attempt"))
        elif kind == "check":
            self._health.ask(message.get("incident"))
        elif kind == "capture":
            self._start(self._capture(message))
        elif kind == "watch":
            logs = message.get("logs")
            if isinstance(logs, list):
                self._watched.extend(path for path in logs if isinstance(path, str) and os.path.isabs(path))
        elif kind in {"read", "read-stop"}:
            self._reader.obey(message)
        elif kind == "over":
            self._over.set()

    def _newer(self, attempt: object) -> None:
        """Take note of the newest attempt; whatever is older is killed, and that it is gone is said."""
        if type(attempt) is not int or attempt < self._attempt or attempt < 1:
            return
        if attempt > self._attempt:
            self._found.clear()
        self._attempt = self._swept = attempt
        self._start(self._sweep(attempt))

    def _end(self, attempt: object) -> None:
        """Kill what this attempt has left, too: the cluster could not, as when its own daemon of the step is gone."""
        if type(attempt) is int and 1 <= attempt <= self._attempt:
            self._swept = attempt + 1
            self._start(self._sweep(attempt + 1))

    async def _sweep(self, attempt: int) -> None:
        while self._swept == attempt:
            if await asyncio.to_thread(sweep, self._run_dir, self._node, attempt, _SWEEP_S):
                self._uplink.send({"type": "gone", "node": self._node, "attempt": attempt - 1})
                return

    async def _capture(self, message: Message) -> None:
        incident, attempt, deadline_s = message.get("incident"), message.get("attempt"), message.get("deadline_s")
        if type(incident) is not int or type(attempt) is not int or not isinstance(deadline_s, int | float):
            return
        # A fifth of the time is left for the answer's own way.
        deadline_s = min(600.0, max(0.5, 0.8 * deadline_s))
        await asyncio.wait({self._start(self._read_logs())}, timeout=min(_LAST_WORDS_S, deadline_s))
        kept: dict[str, Kept] = {}
        if message.get("stacks") is not False:
            targets = await asyncio.to_thread(self._targets, attempt)
            kept = await asyncio.to_thread(
                keep_evidence, self._run_dir, attempt, self._node, targets, deadline_s, find_py_spy()
            )
        self._uplink.send(
            {
                "type": "captured",
                "node": self._node,
                "incident": incident,
                "attempt": attempt,
                "ranks": {rank: one.said for rank, one in kept.items()},
                "stacks": {
                    r: [one.waits_in, one.top, one.stopped] for r, one in kept.items() if one.top or one.stopped
                },
            }
        )

    def _targets(self, attempt: int) -> list[Target]:
        """Every rank that has its place on this node, with its process where one is known."""
        pids: dict[int, int | None] = dict.fromkeys(ranks_here(self._run_dir, attempt, self._node) or ())
        pids.update(self._board.pids(attempt))
        for rank, process in read_pids(self._run_dir, attempt, self._node).items():
            if is_still(process.pid, process.written):
                pids[rank] = process.pid
        return [Target(rank, pid) for rank, pid in sorted(pids.items())]

    # --- from the ranks --------------------------------------------------------------------------------------------

    def _read_ranks(self, ranks: socket.socket) -> None:
        for _ in range(256):  # then the loop gets its turn
            try:
                data = ranks.recv(65536)
            except OSError:
                return
            try:
                message = json.loads(data)
            except (ValueError, RecursionError):
                continue
            self._hear(message)

    def _is_launched(self, attempt: int) -> bool:
        """Has the controller told of this attempt, or left its map? A rank may be quicker than the controller's word."""
        return attempt <= self._attempt or os.path.exists(
            os.path.join(attempt_dir(self._run_dir, attempt), "launch.json")
        )

    def _hear(self, message: object) -> None:
        """Note one message of a rank, and pass it on when it can't wait for the beat."""
        if not isinstance(message, dict) or not self._board.take(message, time.monotonic()):
            return
        if self._memory.heard(message, time.monotonic()) and not self._weighing:
            self._weighing = True
            self._start(self._weigh())
        told = {"type": "rank", "node": self._node, "m": message}
        if message["k"] == "exit" and not self._board.speaks(message["r"], message["a"]):
            self._start(self._last_words(told))
        else:
            self._uplink.send(told)

    async def _last_words(self, ended: Message) -> None:
        """The last steps of a rank of which only the log tells, and then its end: what comes after the end is not counted."""
        await asyncio.wait({self._start(self._read_logs())}, timeout=_LAST_WORDS_S)
        self._uplink.send(ended)

    async def _weigh(self) -> None:
        """See how much memory the ranks take while a save is written."""
        while self._memory.watches(time.monotonic()):
            await asyncio.to_thread(self._memory.look, self._board.pids(self._attempt).values())
            await asyncio.sleep(_WEIGH_S)
        self._weighing = False
        self._beat(None)

    async def _endings(self) -> None:
        while True:
            attempt = self._attempt
            ranks = [r for r in self._follower.ranks if not self._board.has_ended(r, attempt)]
            for message in await asyncio.to_thread(read_endings, self._run_dir, attempt, ranks):
                if not self._board.has_ended(message["r"], attempt):  # its shim may have said so meanwhile
                    self._hear(message)
            await asyncio.sleep(_ENDINGS_S)

    async def _logs(self) -> None:
        while True:
            await self._read_logs()
            await asyncio.sleep(self._poll_s)

    async def _read_logs(self) -> None:
        async with self._reading:
            self._follower.attempt(self._attempt)
            self._follower.watch(self._watched)
            heard = await asyncio.to_thread(self._follower.look, time.time(), time.monotonic())
        for finding in heard.findings:
            self._found.append({"type": "finding", "node": self._node, "finding": finding})
            self._uplink.send(self._found[-1])
        for message in heard.steps:
            self._hear(message)

    # --- the node's health -----------------------------------------------------------------------------------------

    async def _checks(self, sockets: str) -> None:
        """Follow the kernel log, and look at the node in rounds; without a plan only that is said."""
        plan = await asyncio.to_thread(read_plan, self._run_dir)
        if isinstance(plan, str):
            self._health.note({"health": unknown(plan)})
            await self._health.run([], 0)
            return
        self._kernel = await asyncio.to_thread(find, plan.kernel_log.replace("%N", self._node))
        self._follower.listen(self._kernel)
        await self._health.run([*checks_of(plan, self._baselines(sockets)), Follow(self._kernel)], plan.every_s)

    def _baselines(self, sockets: str) -> str:
        """Where what the checks compare with is kept; an agent that is started again goes on with it."""
        return os.path.join(sockets, f"health-{self._node}")

    def _say_health(self, results: list[Message]) -> None:
        self._uplink.send({"type": "health", "node": self._node, "results": results})

    def _say_checked(self, ended: Message) -> None:
        self._uplink.send({"type": "checked", "node": self._node, **ended})

    # --- to the controller -----------------------------------------------------------------------------------------

    async def _beats(self) -> None:
        while True:
            self._beat(None)
            with contextlib.suppress(TimeoutError):
                # Not wait_for(): in Python 3.11 it can swallow the cancellation that ends us.
                async with asyncio.timeout(self._beat_s):
                    await self._beat_now.wait()
            self._beat_now.clear()

    async def _directory(self) -> None:
        """Look at the run directory beside the beats: a file system that hangs must not make the node look dead."""
        while await asyncio.to_thread(os.path.isdir, self._run_dir):
            await self._uplink.leave_old()
            await asyncio.sleep(min(1.0, self._beat_s))
        self._over.set()

    def _beat(self, clock: object) -> None:
        """Send a beat; `clock` is the controller's own time, sent back so that it learns the offset of ours."""
        message: Message = {
            "type": "beat",
            "node": self._node,
            "wall": time.time(),
            "monotonic": time.monotonic(),
            "dropped": self._uplink.dropped + self._board.dropped,
            "spooled": self._uplink.spooled,
            "ranks": self._board.rows(time.monotonic()),
        }
        if isinstance(clock, int | float):
            message["echo"] = clock
        if (saving := self._memory.told()) is not None:
            message["saving"] = saving
        self._uplink.send(message, keep=False)


def _bind(path: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of an agent before us; the lock says that it is gone
    ranks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    ranks.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE)
    ranks.bind(path)
    return ranks


def _lock(path: str) -> int | None:
    """Hold the lock of this node's agent until this process ends; None when another agent has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def main(arguments: list[str]) -> int:
    """Run the agent; exit codes: 0 the run is over (or another agent serves this node), 2 bad usage."""
    node = os.environ.get("SLURMD_NODENAME") or os.environ.get("RELIGHT_NODE") or ""
    if len(arguments) != 1 or not node or "/" in node or not os.path.isdir(arguments[0]):
        print("relight agent: needs RUN_DIR, and RELIGHT_NODE or SLURMD_NODENAME", file=sys.stderr)
        return 2
    run_dir = os.path.abspath(arguments[0])
    sockets = make_socket_dir(run_dir)
    if _lock(agent_lock(sockets, node)) is None:
        print(f"relight agent: another agent serves {node}", file=sys.stderr)
        return 0

    async def serve() -> None:
        await Agent(run_dir, node).run(sockets)

    asyncio.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
