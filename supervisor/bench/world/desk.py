"""The desk and the person at it: who approves late, refuses, changes the plan, types a wrong digest, or sleeps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from policies.decisions import Decision
from policies.facts import View
from policies.history import History
from supervisor.bench.world.timeline import Timeline
from supervisor.gate import Held
from supervisor.journal.entries import Carried
from supervisor.journal.requests import Answer, Request, What
from supervisor.telling.notices import Notice

READS_S = 1.0
"""So long after a notice the person has it on the screen."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who is on call. `answers_s`: seconds from a notice to the answer; None: asleep."""

    name: str = "li.wei"
    answers_s: float | None = 30.0
    refuses: bool = False
    wrong_first: bool = False  # types a wrong digest first
    changes: Request | None = None  # what is changed in the first plan before it is approved
    resumes_s: float | None = None  # lifts a halt after this, with a reason


@dataclass(slots=True)
class SimDesk:
    """`ports.Desk` with a person at it. It outlives the controllers, as the run directory does."""

    time: Timeline
    rng: Random
    person: Person
    wake: Callable[[], None]
    waiting: list[Request] = field(default_factory=list)
    filed: list[Request] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    notices: list[tuple[float, Notice]] = field(default_factory=list)
    changed: bool = False
    erred: bool = False

    def pending(self) -> list[Request]:
        """Requests that wait."""
        return list(self.waiting)

    def answer(self, reply: Answer) -> None:
        """Answer one and take it away."""
        self.answers.setdefault(reply.id, reply)
        self.waiting = [r for r in self.waiting if r.id != reply.id]

    def record(self, history: History, incident: int) -> None:
        """The record is made from the journal when it is asked for."""

    def status(self, view: View, decision: Decision, held: Held | None, now: float) -> None:
        """What a person can look up; this one goes by the notice, which names the plan."""

    def carried(self, matter: str | None) -> list[Carried]:  # noqa: ARG002 - the port's signature
        """This telephone always rings."""
        return []

    def ticked(self) -> None:
        """Nobody listens for a beat."""

    def tell(self, notice: Notice, story: str, reached: Collection[str] = ()) -> int:  # noqa: ARG002 - the port's signature
        """The telephone rings."""
        self.notices.append((self.time.now, notice))
        person = self.person
        if notice.what == "plan" and person.answers_s is not None:
            plan = notice.key.partition(":")[2]
            self.time.after(READS_S + person.answers_s, lambda: self._answer(plan))
        elif notice.what == "halt" and person.resumes_s is not None:
            self.time.after(person.resumes_s, lambda: self.file("resume", why="looked at it"))
        return 0

    def _answer(self, seen: str) -> None:
        person = self.person
        if person.refuses:
            self.file("refuse", digest=seen, why="not on this data")
            return
        if person.wrong_first and not self.erred:
            self.erred = True
            self.file("approve", digest="".join("0" if c != "0" else "1" for c in seen))
            self.time.after(20.0, lambda: self._answer(seen))
            return
        if person.changes is not None and not self.changed:
            self.changed = True
            self._file(replace(person.changes, id=self._id(), at=self.time.now))
            return  # another plan, another notice
        self.file("approve", digest=seen)

    def file(self, what: What, **more: Any) -> None:
        """File a request; `more`: other fields of it."""
        self._file(Request(self._id(), what, self.person.name, self.time.now, **more))

    def _file(self, request: Request) -> None:
        self.waiting.append(request)
        self.filed.append(request)
        self.wake()

    def _id(self) -> str:
        return f"{int(self.time.now * 1000):014d}-{self.rng.getrandbits(32):08x}"
