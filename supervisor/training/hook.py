"""Report an exception that nobody caught, then let the hook that stood before have it."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TypeAlias

ExceptHook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class Reporter(Protocol):
    """Whom an exception is reported to: a Run."""

    def exception(self, kind: str, text: str, where: str) -> None:
        """An uncaught exception."""
        ...


class _Reporting:
    """An excepthook that reports to `run`, then calls the one before it."""

    def __init__(self, run: Reporter, before: ExceptHook) -> None:
        self.run = run
        self.before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(Exception):  # a broken __str__ must not hide the traceback itself
            frames = traceback.extract_tb(trace)
            where = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
            self.run.exception(kind.__name__, str(error), where[-512:])
        self.before(kind, error, trace)


def install(run: Reporter) -> None:
    """Put the hook in place; connecting again only changes whom it reports to."""
    if isinstance(sys.excepthook, _Reporting):
        sys.excepthook.run = run
    else:
        sys.excepthook = _Reporting(run, sys.excepthook)


def remove(run: Reporter) -> None:
    """Put the hook that stood before back, if ours reports to `run` and no other has been put over it."""
    if isinstance(sys.excepthook, _Reporting) and sys.excepthook.run is run:
        sys.excepthook = sys.excepthook.before
