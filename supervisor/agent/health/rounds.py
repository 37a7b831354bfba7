"""Looks at the node in calm rounds and says what has changed. It never holds up the agent, and nothing it meets ends it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from supervisor.agent.health.results import Check, Result, State, Verdict, unknown

FIRST_S: Final = 1.0
"""Seconds before the first round: the ranks that start now need the processor more."""

AT_ONCE: Final = 2
"""Children at a time: eight ranks train beside them."""

MESSAGE: Final = 16
"""Results in one message: with texts of 300 characters, each up to 12 bytes on the wire, it stays below its 64 kB."""

MOST: Final = 64
"""Results that a node can have."""


class Rounds:
    """The newest result of every check. `tell` is called with lists of results on the wire, `tell_checked` with what is told
    of a whole round once all its results are; `attempt` is the newest one.

    `wall` and `monotonic` give seconds.
    """

    def __init__(
        self,
        tell: Callable[[list[dict[str, Any]]], None],
        tell_checked: Callable[[dict[str, Any]], None],
        attempt: Callable[[], int],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._tell_checked = tell_checked
        self._attempt = attempt
        self._wall = wall
        self._monotonic = monotonic
        self._newest: dict[str, Result] = {}
        self._known: dict[str, Result] = {}  # what each said when it last could look
        self._asked = 0  # the newest incident for which a round was asked for
        self._wanted = asyncio.Event()
        self._ended: dict[str, Any] | None = None  # what was told of the last whole round

    async def run(self, checks: Sequence[Check], every_s: float, first_s: float = FIRST_S) -> None:
        """Rounds for ever, and one at once when it is asked for. `every_s` 0: there is nothing to look at, and that is told."""
        pause: float | None = first_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.once(checks if every_s > 0 else ())
            pause = every_s or None

    def ask(self, incident: object) -> None:
        """Somebody waits for a whole round that begins from now on, because of this incident; asked twice it is one question."""
        if type(incident) is not int or incident < 1:
            return
        if incident > self._asked:
            self._asked = incident
            self._wanted.set()
        elif self._ended is not None and self._ended["for"] >= incident:
            self._tell_checked(self._ended)

    async def once(self, checks: Iterable[Check]) -> None:
        """One round. A check that hangs holds up others of the round at most, until its deadline."""
        room, asked, began = asyncio.Semaphore(AT_ONCE), self._asked, self._monotonic()
        names: set[str] = set()

        async def one(check: Check) -> None:
            async with room:
                began = self._monotonic()
                try:
                    said = dict(await check.look())
                except Exception as error:  # noqa: BLE001  a check that breaks is unknown; the agent goes on
                    said = {name: unknown(f"{type(error).__name__}: {error}") for name in check.names}
                names.update(said)
                self.note(said, self._monotonic() - began)

        await asyncio.gather(*(one(check) for check in checks))
        took_s = round(self._monotonic() - began, 3)
        self._ended = {"ended": round(self._wall(), 3), "took_s": took_s, "checks": len(names), "for": asked}
        self._tell_checked(self._ended)

    def note(self, said: dict[str, Verdict], took_s: float = 0.0) -> None:
        """Take over what one check says, and tell what is new."""
        news = []
        now = self._wall()
        for name, verdict in said.items():
            last = self._newest.get(name)
            if last is None and len(self._newest) >= MOST:
                continue
            fresh = self._result(name, verdict, now, took_s)
            if last is None or fresh.differs(last):
                news.append(fresh)
            self._newest[name] = fresh
            if verdict.state is not State.UNKNOWN:
                self._known[name] = fresh
        self._send(news)

    def _result(self, name: str, verdict: Verdict, now: float, took_s: float) -> Result:
        """The same as before has been so since before, also when in between it could not look."""
        fresh = Result(name, verdict, now, took_s, now, None, self._attempt())
        for earlier in (self._newest.get(name), self._known.get(name)):
            if earlier is not None and not fresh.differs(earlier):
                return replace(fresh, since=earlier.since, before=earlier.before, attempt=earlier.attempt)
        known = self._known.get(name)
        return replace(fresh, before=None if known is None else known.when)

    def tell_all(self) -> None:
        """Tell everything again, to a controller that is new."""
        self._send(list(self._newest.values()))
        if self._ended is not None:
            self._tell_checked(self._ended)

    def _send(self, results: list[Result]) -> None:
        for first in range(0, len(results), MESSAGE):
            self._tell([one.wire() for one in results[first : first + MESSAGE]])
