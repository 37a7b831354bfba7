"""The run directory as the desk where people leave requests and read answers, records and status."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from policies.decisions import Decision
from policies.facts import View
from policies.history import History
from supervisor.durable import show_whole
from supervisor.gate import Held
from supervisor.journal import requests
from supervisor.journal.entries import Carried
from supervisor.journal.requests import Answer, Request
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.telling import targets
from supervisor.telling.courier import Courier
from supervisor.telling.heart import heart_for
from supervisor.telling.notices import Notice
from supervisor.telling.record import write_incident
from supervisor.telling.status import status_json
from supervisor.telling.targets import Targets


def _nothing() -> None:
    """Nobody waits for news."""


class FileDesk:
    """`ports.Desk` in the run directory. `changed` is called, from any thread, when a notice has fared in some way."""

    def __init__(self, run: RunDir, settings: Settings, changed: Callable[[], None] = _nothing) -> None:
        self._run = run
        self._settings = settings
        notify = settings.notify
        # What `relight run` has left there is whole; without it there is still the command, which is no secret.
        whom = targets.read(run.root) or Targets(notify.command, link=notify.link, deadline_s=notify.deadline_s)
        self._courier = Courier(whom, changed)
        self._heart = heart_for(whom.heartbeat_url, whom.heartbeat_s, run.journal, whom.deadline_s)
        if self._heart:
            self._heart.start()

    def pending(self) -> list[Request]:
        """Requests that wait, oldest first."""
        return requests.pending(self._run.root)

    def answer(self, reply: Answer) -> None:
        """Answer one and take it away."""
        requests.answer(self._run.root, reply)

    def record(self, history: History, incident: int) -> None:
        """incidents/NNNN/."""
        write_incident(self._run, history, incident, self._settings)

    def status(self, view: View, decision: Decision, held: Held | None, now: float) -> None:
        """status.json."""
        show_whole(self._run.path("status.json"), json.dumps(status_json(view, decision, held, now)).encode())

    def tell(self, notice: Notice, story: str, reached: Collection[str] = ()) -> int:
        """Start to carry it to everybody who has not been reached; how many targets there are."""
        return self._courier.send(notice, story, reached)

    def carried(self, matter: str | None) -> list[Carried]:
        """How notices fared since the last call."""
        return self._courier.news(matter, only=True)

    def ticked(self) -> None:
        """A turn is over."""
        if self._heart:
            self._heart.ticked()

    def close(self) -> None:
        """No more beats."""
        if self._heart:
            self._heart.stop()
