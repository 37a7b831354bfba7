"""The way from a rank to the agent of its node: unix datagrams that never block and never raise."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import time
from collections import deque
from typing import Any, Final

LIMIT: Final = 8192
"""Bytes in one datagram at most (docs/contracts.md, section 4)."""

KEPT: Final = 64
"""Messages that wait for the next call when the agent could not take them. Steps never wait: the next replaces them."""


def _foreign(value: object) -> object:
    """Turn a scalar of another library (numpy, torch) into a plain one; anything else into its text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def _finite(value: object) -> object:
    """The same value with every number that JSON has no word for as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value if value is None or isinstance(value, str | int) else _finite(_foreign(value))


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False, default=_foreign).encode


class Channel:
    """Sends one rank's messages to the socket at `path`.

    What cannot be sent is counted, and the count rides on the next message. Messages other than steps are kept (64 at
    most) and go ahead of the next one, because a `loaded` that is lost would fail an attempt that is well.
    """

    def __init__(self, path: str, rank: int, attempt: int) -> None:
        self.path = path
        self.rank = rank
        self.attempt = attempt
        self.dropped = 0
        self._kept: deque[bytes] = deque()
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    def send(self, kind: str, fields: dict[str, Any], *, keep: bool = True) -> None:
        """Send one message now, or keep it for the next call, or drop and count it."""
        data = self._line(kind, fields)
        if data is None:
            self.dropped += 1
            return
        if not self._flush() or not self._put(data):
            self._set_aside(data, keep=keep)

    def last_word(self, kind: str, fields: dict[str, Any], wait_s: float = 0.2) -> None:
        """Send a message after which none may follow: a full agent is given `wait_s` seconds to make room."""
        self.send(kind, fields)
        if not self._kept or self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.settimeout(wait_s)
            self._flush()
            self._socket.settimeout(0)

    def close(self) -> None:
        """Let the socket go; later messages are dropped and counted."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _line(self, kind: str, fields: dict[str, Any]) -> bytes | None:
        message = {"k": kind, "r": self.rank, "a": self.attempt, "t": time.time(), "m": time.monotonic(), **fields}
        if self.dropped:
            message["dropped"] = self.dropped
        try:
            try:
                text = _encode(message)
            except ValueError:  # a NaN or an infinity, which JSON has no word for
                text = _encode(_finite(message))
            data = text.encode()
        except Exception:  # noqa: BLE001  # whatever a script hands over, its training goes on
            return None
        return data if len(data) <= LIMIT else None

    def _put(self, data: bytes) -> bool:
        if self._socket is None:
            return False
        try:
            # By path each time: an agent that was started again has bound a new socket under the same name.
            self._socket.sendto(data, self.path)
        except OSError:
            return False
        self.dropped = 0
        return True

    def _flush(self) -> bool:
        while self._kept:
            try:
                data = self._kept.popleft()
            except IndexError:  # another thread was faster
                return True
            dropped = self.dropped
            if not self._put(data):
                self._kept.appendleft(data)
                return False
            self.dropped = dropped  # a kept message was written before this count and does not carry it
        return True

    def _set_aside(self, data: bytes, *, keep: bool) -> None:
        if keep and len(self._kept) < KEPT:
            self._kept.append(data)
        else:
            self.dropped += 1
