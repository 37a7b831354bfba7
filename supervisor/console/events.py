"""Server-sent events: a small document whenever something in it has changed, and a sign of life in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from supervisor.console.answering import encoded
from supervisor.console.documents import glance, moment
from supervisor.console.reading import Follower, UnreadableError
from supervisor.console.shapes import Glance

LOOK_S = 1.0
ALIVE_S = 15.0
"""A proxy that sees nothing for a minute closes the line."""
LONGEST_S = 3_600.0
ALL_MAX = 128


class Streams:
    """How many streams are open: `limit` for one token, ALL_MAX for all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    def open(self, key: str) -> bool:
        """Count one in; False when there is no room."""
        if self._open[key] >= self._limit or self._open.total() >= ALL_MAX:
            return False
        self._open[key] += 1
        return True

    def close(self, key: str) -> None:
        """Count one out."""
        self._open[key] -= 1


async def stream(
    name: str, follower: Follower, allowed: Callable[[], bool], look_s: float = LOOK_S, longest_s: float = LONGEST_S
) -> AsyncIterator[bytes]:
    """`event: change` with a row of /api/runs, at once and at each change, while `allowed`. The client comes again after."""
    clock = asyncio.get_running_loop().time
    ends, told, said = clock() + longest_s, b"", clock()
    yield b"retry: 2000\n\n"
    while clock() < ends and await asyncio.to_thread(allowed):
        row = await asyncio.to_thread(_row, name, follower)
        now = encoded(moment(row))
        if now != told:
            told, said = now, clock()
            yield b"event: change\ndata: " + encoded(row) + b"\n\n"
        elif clock() >= said + ALIVE_S:
            said = clock()
            yield b": alive\n\n"
        await asyncio.sleep(look_s)


def _row(name: str, follower: Follower) -> Glance:
    try:
        return glance(name, follower.read())
    except UnreadableError as error:
        return Glance(name, error=str(error))
