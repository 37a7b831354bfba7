"""Where a controller may die: every boundary of a journal write, an effect, a seal. Counted in one run, hit in another."""

from __future__ import annotations

from collections import Counter


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
