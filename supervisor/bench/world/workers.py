"""An executor whose work is done at a later simulated moment, in the same thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Executor):
    """`later(seconds, do)` plans; `seconds()` says how long the next piece of work takes. With `twice`, all is done twice."""

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        seconds: Callable[[], float],
        passing: Callable[[str], None],
        *,
        twice: bool,
    ) -> None:
        self._later = later
        self._seconds = seconds
        self._passing = passing
        self._twice = twice

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Plan the work. When its controller has died meanwhile, it is never done."""
        future: Future[T] = Future()

        def work() -> None:
            self._passing("work before")
            try:
                result = fn(*args, **kwargs)
                if self._twice:
                    result = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - an executor hands on whatever is raised
                self._passing("work failed")
                future.set_exception(error)
            else:
                self._passing("work after")
                future.set_result(result)

        self._later(self._seconds(), work)
        return future
