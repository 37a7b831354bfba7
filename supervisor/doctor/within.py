"""A piece of work with a deadline that a dead file system can't hold up: it is left behind in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Late:
    """Was any work left behind? Whoever ends the process must not wait for its threads then."""

    any: bool = False

    def within(self, seconds: float, work: Callable[[], T], instead: T) -> T:
        """What `work` gives, or raises; `instead` when it has not ended in time."""
        box = _Box[T]()
        thread = threading.Thread(target=box.fill, args=(work,), daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self.any = True
            return instead
        if box.error is not None:
            raise box.error
        return box.values[0]


class _Box(Generic[T]):
    """How the work ended."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self.error: BaseException | None = None

    def fill(self, work: Callable[[], T]) -> None:
        """In the thread."""
        try:
            self.values.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self.error = error
