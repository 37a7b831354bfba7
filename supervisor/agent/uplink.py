"""The way from an agent to the controller: it connects again for ever, keeps what can't be sent, and obeys no old epoch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

LINE: Final = 64 << 10
"""Bytes of a line at most (docs/contracts.md, section 4)."""

SPOOL: Final = 10_000
_FIRST_S: Final = 0.05
_LAST_S: Final = 2.0
"""Seconds between two attempts to connect: the first, doubled up to the last."""

_DEAD_MS: Final = 10_000
"""Milliseconds that sent bytes may stay unacknowledged before the connection is given up (tcp(7), TCP_USER_TIMEOUT)."""

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the controller of an epoch listens."""

    host: str
    port: int
    epoch: int


def read_endpoint(run_dir: str) -> Endpoint | None:
    """Read endpoint.json; None when it is not there or not right."""
    try:
        with open(os.path.join(run_dir, "endpoint.json"), "rb") as file:
            record = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    host, port, epoch = record.get("host"), record.get("port"), record.get("epoch")
    if not isinstance(host, str) or type(port) is not int or type(epoch) is not int or not 0 < port < 65536:
        return None
    return Endpoint(host, port, epoch)


def read_token(run_dir: str) -> str | None:
    """Read the run token; None when it can't be read."""
    try:
        with open(os.path.join(run_dir, "token"), encoding="ascii") as file:
            return file.read(256).strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class _Line(asyncio.Protocol):
    """One connection: whole lines of JSON in, bytes out."""

    def __init__(self, on_message: Callable[[Message], None], on_room: Callable[[], None]) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self.full = False
        self._on_message = on_message
        self._on_room = on_room
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE and self.transport is not None:
            self.transport.abort()
            return
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                self._on_message(message)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the protocol's signature
        if not self.closed.done():
            self.closed.set_result(None)


class Uplink:
    """Sends messages to whoever is the controller now.

    `hello()` gives the first line but for the token; `on_welcome` is called with the controller's welcome once what was
    kept has been sent; `on_message` with every later message of the same epoch.
    """

    def __init__(
        self,
        run_dir: str,
        hello: Callable[[], Message],
        on_welcome: Callable[[Message], None],
        on_message: Callable[[Message], None],
    ) -> None:
        self._run_dir = run_dir
        self._hello = hello
        self._on_welcome = on_welcome
        self._on_message = on_message
        self._spool: deque[bytes] = deque()
        self._line: _Line | None = None
        self._welcomed = False
        self._endpoint: Endpoint | None = None
        self.epoch = 0  # the highest that has been seen; whoever comes with a lower one is not obeyed
        self.dropped = 0

    @property
    def spooled(self) -> int:
        """Messages that wait for a controller."""
        return len(self._spool)

    def send(self, message: Message, *, keep: bool = True) -> None:
        """Send now, or keep it for later. When 10,000 wait, the new one is dropped: the earliest evidence stays."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(data) > LINE or (keep and len(self._spool) >= SPOOL):
            self.dropped += 1
        elif keep:  # behind what waits already, so that nothing is told out of order
            self._spool.append(data)
            self._flush()
        else:
            self._put(data)

    async def run(self) -> None:
        """Stay connected, for ever."""
        pause = _FIRST_S
        while True:
            welcomed = await self._once()
            pause = _FIRST_S if welcomed else min(_LAST_S, 2 * pause)
            await asyncio.sleep(pause)

    async def leave_old(self) -> None:
        """Leave a controller when endpoint.json by now names a newer one: the old one may be frozen, not closed."""
        endpoint = await asyncio.to_thread(read_endpoint, self._run_dir)
        if endpoint is not None and self._endpoint is not None and endpoint.epoch > self._endpoint.epoch:
            self._abort()

    async def _once(self) -> bool:
        endpoint = await asyncio.to_thread(read_endpoint, self._run_dir)
        token = await asyncio.to_thread(read_token, self._run_dir)
        if endpoint is None or token is None or endpoint.epoch < self.epoch:
            return False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(5):
                _, line = await loop.create_connection(
                    lambda: _Line(self._receive, self._flush), endpoint.host, endpoint.port
                )
        except OSError:  # TimeoutError is one
            return False
        self._line, self._endpoint, self._welcomed = line, endpoint, False
        first = {"type": "hello", "token": token, **self._hello()}
        if line.transport is not None:
            line.transport.write(json.dumps(first, separators=(",", ":")).encode() + b"\n")
        try:
            await line.closed
        finally:
            welcomed, self._line, self._welcomed = self._welcomed, None, False
            if line.transport is not None:
                line.transport.abort()
        return welcomed

    def _receive(self, message: Message) -> None:
        epoch = message.get("epoch", self.epoch)
        if type(epoch) is not int or epoch < self.epoch:
            self._abort()
            return
        self.epoch = epoch
        if message.get("type") == "welcome":
            self._welcomed = True
            self._flush()
            self._on_welcome(message)
        elif self._welcomed:
            self._on_message(message)

    def _put(self, data: bytes) -> bool:
        line = self._line
        if line is None or line.transport is None or not self._welcomed or line.full or line.transport.is_closing():
            return False
        line.transport.write(data)
        return True

    def _flush(self) -> None:
        while self._spool and self._put(self._spool[0]):
            self._spool.popleft()

    def _abort(self) -> None:
        if self._line is not None and self._line.transport is not None:
            self._line.transport.abort()
