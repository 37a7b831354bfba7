"""Several processes, here or one a node, try the same things in one folder at the same time; they are told what over TCP.

What a peer says is a claim: checked for its shape, and one that falls silent is named and left out from then on.
"""

from __future__ import annotations

import asyncio
import fcntl
import hmac
import json
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from supervisor.doctor.probe import LINE_MAX
from supervisor.durable import replace_whole

ANSWER_S: Final = 15.0
"""A peer that has not answered by then is left out; a hard NFS mount that stands still would keep it for ever."""
SIGHT_S: Final = 10.0
"""So long a new file may stay unseen; NFS keeps what it has seen of a folder for 3 to 60 s unless told otherwise."""
_CLOCK_TURNS: Final = 5
_AT_ONCE: Final = 16
"""Clocks that are asked at the same time: with more of them the round trips measure our own queue."""
_FREE_TRIED: Final = 8
"""Peers that are asked whether a lock that nobody holds can be had: enough to see that locks are not refused to all."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a peer's clock is ahead of ours, and how wrong that may be: half of the shortest round trip. Seconds."""

    offset: float
    bound: float


@dataclass(slots=True)
class Tried:
    """What came of it, by peer. `lost`: who fell silent, and when. `wins`: for each name who says that he made it.

    `got_held`: who got a lock that we held. `refused_free`: who was refused one that nobody held. `sight`: seconds until a new
    file and a replaced one were seen, None: not within the deadline. `errors`: what the file system refused, by what was tried.
    """

    peers: tuple[str, ...] = ()
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    wins: tuple[tuple[str, ...], ...] = ()
    got_held: list[str] = field(default_factory=list)
    refused_free: list[str] = field(default_factory=list)
    sight: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, dict[str, str]] = field(default_factory=dict)


Task = Mapping[str, Any]
"""What a peer is started with, see `probe.py`."""
Crew = Callable[[Task], AbstractAsyncContextManager[Awaitable[object]]]
"""Starts the peers; what it gives is done when no more of them can come, and they are ended with its context."""
Name = Callable[[Mapping[str, Any]], str]
"""The name by which a peer is known, from its hello; "" refuses it."""


@dataclass(slots=True)
class Peer:
    """One connection."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Ask one thing. Raises OSError or TimeoutError when the peer is gone, ValueError for nonsense."""
        async with asyncio.timeout(ANSWER_S):
            self.writer.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            await self.writer.drain()
            line = await self.reader.readline()
        if not line:
            raise ConnectionError("it has hung up")
        return _object(line)


def _object(line: bytes) -> dict[str, Any]:
    """Raises ValueError for anything but an object of JSON."""
    try:
        told = json.loads(line)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(told, dict):
        raise ValueError("no object")  # noqa: TRY004 - as for any other nonsense
    return told


class Door:
    """Lets peers in that know the token, each name once, and tells when all of them are there."""

    def __init__(self, token: str, expected: int, name: Name, tell: Callable[[int], None]) -> None:
        """`tell` is called with the number of peers that are there."""
        self._token = token
        self._expected = expected
        self._name = name
        self._tell = tell
        self.peers: dict[str, Peer] = {}
        self.full = asyncio.Event()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For `asyncio.start_server`."""
        name = ""
        with suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                hello = _object(await reader.readline())
            if hmac.compare_digest(str(hello.get("token")).encode(), self._token.encode()):
                name = self._name(hello)
        if not name or name in self.peers:
            writer.close()
            return
        self.peers[name] = Peer(name, reader, writer)
        self._tell(len(self.peers))
        if len(self.peers) >= self._expected:
            self.full.set()

    def send_home(self) -> None:
        """Hang up; a peer ends by that."""
        for peer in self.peers.values():
            peer.writer.close()


async def meet(
    folder: str,
    expected: int,
    crew: Crew,
    *,
    name: Name,
    more: Task,
    bind: str = "127.0.0.1",
    turns: int = 64,
    deadline_s: float = 30.0,
    tell: Callable[[int], None] = lambda _: None,
) -> Tried:
    """Start the crew, wait until all are there (or no more can come, or the deadline), and try everything with those.

    `more` is added to the task of each peer. Raises OSError when nothing can listen here or the folder refuses us.
    """
    token = secrets.token_hex(16)
    door = Door(token, expected, name, tell)
    server = await asyncio.start_server(door.admit, bind, 0, limit=LINE_MAX, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    task = {"port": port, "token": token, "folder": folder, "deadline_s": deadline_s + 120.0, **more}
    try:
        async with crew(task) as over:
            waits = {asyncio.ensure_future(door.full.wait()), asyncio.ensure_future(over)}
            await asyncio.wait(waits, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            try:
                return await Trials(folder, list(door.peers.values()), turns, report=bool(more.get("report"))).all()
            finally:
                door.send_home()
    finally:
        server.close()
        door.send_home()


class Trials:
    """Everything that is tried, in order, with the peers that are there."""

    def __init__(self, folder: str, peers: list[Peer], turns: int, *, report: bool) -> None:
        """`turns`: names that all of them want; `report`: ask for their reports as well."""
        self._report = report
        self._folder = folder
        self._peers = peers
        self._turns = turns
        self._tried = Tried(peers=tuple(sorted(peer.name for peer in peers)))

    async def all(self) -> Tried:
        """Raises OSError when the folder refuses us."""
        if self._peers:
            self._tried.reports = await self._each(self._peers, "report") if self._report else {}
            await self._clocks()
            await self._race()
            await self._locks()
            await self._sight()
        return self._tried

    async def _each(self, peers: Iterable[Peer], do: str, **fields: object) -> dict[str, dict[str, Any]]:
        """Ask all of them at once. Who does not answer is lost; what the file system refused goes to `errors`."""
        asked = [peer for peer in peers if peer.name not in self._tried.lost]
        told = await asyncio.gather(*(peer.ask(do, **fields) for peer in asked), return_exceptions=True)
        good: dict[str, dict[str, Any]] = {}
        for peer, answer in zip(asked, told, strict=True):
            if isinstance(answer, OSError | TimeoutError | ValueError):
                self._tried.lost[peer.name] = f"{do}: {str(answer) or 'no answer'}"[:200]
            elif isinstance(answer, BaseException):
                raise answer
            elif "error" in answer:
                self._tried.errors.setdefault(do, {})[peer.name] = str(answer["error"])[:200]
            else:
                good[peer.name] = answer
        return good

    async def _clocks(self) -> None:
        for start in range(0, len(self._peers), _AT_ONCE):
            some = self._peers[start : start + _AT_ONCE]
            found = await asyncio.gather(*(self._clock(peer) for peer in some))
            self._tried.clocks |= {peer.name: clock for peer, clock in zip(some, found, strict=True) if clock}

    async def _clock(self, peer: Peer) -> Clock | None:
        best = None
        for _ in range(_CLOCK_TURNS):
            before, begin = time.time(), time.monotonic()
            answer = (await self._each([peer], "clock")).get(peer.name)
            trip = time.monotonic() - begin
            wall = answer.get("wall") if answer else None
            if not isinstance(wall, float) or not math.isfinite(wall):
                return best
            if best is None or trip / 2 < best.bound:
                best = Clock(wall - (before + trip / 2), trip / 2)
        return best

    async def _race(self) -> None:
        told = await self._each(self._peers, "create", name="race", turns=self._turns)
        won: list[list[str]] = [[] for _ in range(self._turns)]
        for name, answer in told.items():
            turns = answer.get("won")
            for turn in turns if isinstance(turns, list) else ():
                if isinstance(turn, int) and 0 <= turn < self._turns:
                    won[turn].append(name)
        self._tried.wins = tuple(tuple(sorted(names)) for names in won)

    async def _locks(self) -> None:
        """First one that we hold, which nobody may get; then the same one free, which whoever asks alone must get."""
        handle = os.open(os.path.join(self._folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # a mount without locks refuses them to everybody
                self._tried.errors["lock"] = {"this process": error.strerror or str(error)}
                return
            told = await self._each(self._peers, "lock", name="lock")
            self._tried.got_held = sorted(name for name, answer in told.items() if answer.get("got") is not False)
        finally:
            os.close(handle)
        for peer in self._peers[:_FREE_TRIED]:
            answer = (await self._each([peer], "lock", name="lock")).get(peer.name)
            if answer is not None and answer.get("got") is not True:
                self._tried.refused_free.append(peer.name)

    async def _sight(self) -> None:
        """A file that is new, after it was looked for in vain, and one that is replaced, after it was read."""
        fresh, kept = os.path.join(self._folder, "fresh"), os.path.join(self._folder, "kept")
        replace_whole(kept, b"old")
        await self._each(self._peers, "read", name="kept")
        await self._each(self._peers, "read", name="fresh")
        replace_whole(fresh, b"new")
        replace_whole(kept, b"new")
        begin = time.monotonic()
        waiting = list(self._peers)
        while waiting and (waited := time.monotonic() - begin) < SIGHT_S:
            one = await self._each(waiting, "read", name="fresh")
            two = await self._each(waiting, "read", name="kept")
            both = {name for name in one.keys() & two.keys() if one[name].get("text") == two[name].get("text") == "new"}
            self._tried.sight |= dict.fromkeys(both, time.monotonic() - begin)
            refused = self._tried.errors.get("read", {})
            waiting = [p for p in waiting if p.name not in both | self._tried.lost.keys() | refused.keys()]
            if waiting:
                await asyncio.sleep(min(0.2, SIGHT_S - waited))  # nothing tells when a cache lets go
        self._tried.sight |= dict.fromkeys((peer.name for peer in waiting), None)


@asynccontextmanager
async def children(
    task: Task, number: int, argv: tuple[str, ...], env: Mapping[str, str]
) -> AsyncIterator[Awaitable[object]]:
    """A crew of processes of this machine."""
    outer = {**env, "RELIGHT_DOCTOR": json.dumps({**task, "report": False, "munge": ""})}
    started: list[asyncio.subprocess.Process] = []
    try:
        while len(started) < number:
            one = await asyncio.create_subprocess_exec(
                *argv, env=outer, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
            )
            started.append(one)
        yield asyncio.gather(*(one.wait() for one in started))
    finally:
        for one in started:
            if one.returncode is None:
                with suppress(ProcessLookupError):
                    one.kill()
            await one.wait()
