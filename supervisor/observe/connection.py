"""One agent's connection: lines in, lines out. Whoever does not say the run token first is sent away. Hostile until checked."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from supervisor.observe.messages import Hello, hello

LINE: Final = 64 << 10
"""Bytes of a line at most."""

UNSENT: Final = 4 << 20
"""Bytes that may wait for an agent that does not read. Then it is dropped; it connects again."""

HELLO_S: Final = 10.0
"""Seconds within which the first line must come."""


class Listener(Protocol):
    """Who takes what the connections bring."""

    token: str

    def greeted(self, connection: Connection, greeting: Hello) -> None:
        """The agent has said the token."""
        ...

    def take(self, connection: Connection, message: dict[str, Any]) -> None:
        """One message of a greeted agent."""
        ...

    def ignored(self) -> None:
        """Something came that made no sense."""
        ...

    def lost(self, connection: Connection) -> None:
        """The connection is over."""
        ...


class Connection(asyncio.Protocol):
    """The state of one connection; times are seconds of the controller's clock."""

    def __init__(self, listener: Listener, clock: Callable[[], float]) -> None:
        self._listener = listener
        self._clock = clock
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.node = ""
        self.since = 0.0
        self.last_beat = 0.0
        self.told = False
        self.offset = 0.0
        self.offset_bound = float("inf")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the first line has to come in time."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._too_late)

    def data_received(self, data: bytes) -> None:
        """Take what has come, line by line."""
        *lines, rest = (self._rest + data).split(b"\n") if self._rest else data.split(b"\n")
        self._rest = rest
        for line in lines:
            if self._transport is None or self._transport.is_closing():
                return
            if len(line) > LINE:
                self._listener.ignored()
                self.close()
                return
            self._line(line)
        if len(rest) > LINE:
            self._listener.ignored()
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the protocol's signature
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.lost(self)

    def send(self, message: dict[str, Any]) -> None:
        """Send one line; an agent that has stopped reading is let go."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > UNSENT:
            self.close()
        else:
            self._transport.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def measure(self, wall: float, echo: float | None) -> None:
        """Learn the offset of the agent's clock (ours minus its) from a wall time of it, seconds.

        With our own time echoed the bound is half of the round trip. Without, the delay is not known: the first guess
        is taken with a bound of a second, and only until something better comes.
        """
        now = self._clock()
        if echo is not None and 0 <= now - echo <= 60:
            bound = (now - echo) / 2
            # An older measurement may be the better one, but clocks drift: it stands only while it is twice as good.
            if bound <= 2 * self.offset_bound:
                self.offset, self.offset_bound = now - bound - wall, bound
        elif self.offset_bound == float("inf"):
            self.offset, self.offset_bound = now - wall, 1.0

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not self.node:
            self._greet(message)
        elif isinstance(message, dict):
            self._listener.take(self, message)
        else:
            self._listener.ignored()

    def _greet(self, message: object) -> None:
        greeting = hello(message) if isinstance(message, dict) else None
        # Compared as bytes: a token with other than ASCII letters is wrong, not an error.
        if greeting is None or not hmac.compare_digest(
            greeting.token.encode("utf-8", "replace"), self._listener.token.encode()
        ):
            self._listener.ignored()
            self.close()
            return
        if self._timer is not None:
            self._timer.cancel()
        self.node = greeting.node
        self.since = self.last_beat = self._clock()
        self.measure(greeting.wall, None)
        self._listener.greeted(self, greeting)

    def _too_late(self) -> None:
        if not self.node:
            self.close()
