"""Where a controller may die: every boundary of a journal write, an effect, a seal. Counted in one run, hit in another."""

from __future__ import annotations

import gc
import os
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Container
from typing import NoReturn


class KilledError(BaseException):
    """The controller has just been killed. No `except Exception` of the product may catch it."""


class Points:
    """Counts the boundaries; at those of `kills` (in the order in which they are passed, from 0) the controller dies."""

    def __init__(self, kills: frozenset[int] = frozenset()) -> None:
        self._kills = kills
        self.passed = 0
        self.names: Counter[str] = Counter()
        self.hit: list[str] = []

    def is_next(self) -> bool:
        """Is the controller to die at the next boundary?"""
        return self.passed in self._kills

    def stop(self) -> None:
        """Nobody is killed any more."""
        self._kills = frozenset()

    def passing(self, name: str) -> None:
        """Pass a boundary. Raises KilledError when this is where it ends."""
        dies = self.is_next()
        self.passed += 1
        self.names[name] += 1
        if dies:
            self.hit.append(name)
            raise KilledError(name)


class Branching(Points):
    """At each boundary of `where` the world is forked: in the copy the controller dies there, in this one it goes on.

    The copy tells how it ended with `end(text)`; `told` has what all copies said. So nothing before a boundary is played twice.
    """

    def __init__(self, where: Container[int]) -> None:
        super().__init__()
        self._where = where
        self._branched = -1
        self._pipe: int | None = None
        self.told: dict[int, bytes] = {}

    @property
    def is_copy(self) -> bool:
        """Is this a copy, in which the controller dies?"""
        return self._pipe is not None

    def is_next(self) -> bool:
        """Is the controller to die at the next boundary, here?"""
        if not self.is_copy and self._branched < self.passed and self.passed in self._where:
            self._branched = self.passed
            self._branch()
        return super().is_next()

    def end(self, text: bytes) -> NoReturn:
        """In a copy: say how it went, and end."""
        assert self._pipe is not None  # noqa: S101 - only asked in a copy
        with os.fdopen(self._pipe, "wb") as pipe:
            pipe.write(text)
        os._exit(0)

    def _branch(self) -> None:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a test runner has threads; the copy uses none of them
            pid = os.fork()
        if pid == 0:
            os.close(read)
            gc.freeze()  # what is shared with the original stays shared
            self._pipe = write
            self._kills = frozenset({self.passed})
            return
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            self.told[self.passed] = pipe.read()
        os.waitpid(pid, 0)


def in_copies(points: Branching, play: Callable[[], bytes]) -> None:
    """Play; a copy ends with what `play` answers, and with a traceback if it can answer nothing."""
    try:
        answer = play()
    except BaseException:
        if points.is_copy:
            points.end(traceback.format_exc().encode())
        raise
    if points.is_copy:
        points.end(answer)
