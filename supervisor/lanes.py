"""Threads for work that takes hours or may hang: a lane each, so that no other work waits for it, and no end of the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Lanes(Executor):
    """Each piece of work gets a thread of its own, which dies with the process. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0

    @property
    def busy(self) -> bool:
        """Is anything still at work?"""
        return self._open > 0

    def abandon(self, code: int) -> None:
        """End this process with `code` when anything is still at work; else do nothing.

        Work of hours may have pools of its own, and Python waits for their threads. To what is left half a kill is nothing new.
        """
        if self.busy:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start it now."""
        future: Future[T] = Future()
        with self._lock:
            self._open += 1

        def work() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - an executor hands on whatever is raised
                self._close()
                future.set_exception(error)
            else:
                self._close()
                future.set_result(result)

        threading.Thread(target=work, name="relight-lane", daemon=True).start()
        return future

    def _close(self) -> None:
        with self._lock:
            self._open -= 1
