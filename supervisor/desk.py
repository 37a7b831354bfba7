"""The run directory as the desk where people leave requests and read answers, records and status."""

from __future__ import annotations

import json
from concurrent.futures import Future

import structlog

from policies.facts import Decision, History, View
from supervisor.durable import show_whole
from supervisor.gate import Held
from supervisor.journal import requests
from supervisor.journal.requests import Answer, Request
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.telling import notices
from supervisor.telling.notices import Notice
from supervisor.telling.record import write_incident
from supervisor.telling.status import status_json


class FileDesk:
    """`ports.Desk` in the run directory."""

    def __init__(self, run: RunDir, settings: Settings) -> None:
        self._run = run
        self._settings = settings

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

    def tell(self, notice: Notice, story: str) -> None:
        """Run the site's command, if there is one; it has a thread of its own."""
        settings = self._settings.notify
        if settings.command:
            sent = notices.run_command(settings.command, notice, story, settings.deadline_s)
            sent.add_done_callback(_told)


def _told(sent: Future[notices.Outcome]) -> None:
    outcome = sent.result()
    if not outcome.ok:
        structlog.get_logger().error("notice-failed", why=outcome.why)
