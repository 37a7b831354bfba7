"""How far the copies between store and archive have come, for those who look on."""

from __future__ import annotations

Moved = tuple[str, int, int]
"""What is moved ("restoring a0003-i0000040 from the archive"), the bytes that are done, all bytes."""
KEPT = 16


class Moves:
    """Told by whoever moves, from any thread; read by the view."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def __call__(self, done: int, total: int, what: str) -> None:
        """One more piece has come."""
        if what not in self._known and len(self._known) >= KEPT:
            self._known = {}
        self._known[what] = (done, total)

    def shown(self) -> tuple[Moved, ...]:
        """What was told last of each; what has ended is among them."""
        return tuple((what, *far) for what, far in tuple(self._known.items()))
