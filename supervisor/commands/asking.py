"""What the commands share that ask a controller for something, or read what it wrote."""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from dataclasses import dataclass, replace

import click
from pydantic import ValidationError

from policies.facts import Spans
from policies.history import History
from supervisor.errors import NOT_YET_EXIT, OWN_FAULT_EXIT, UserError
from supervisor.fold import fold_all
from supervisor.journal import journal, requests
from supervisor.journal.entries import Stamped
from supervisor.journal.lease import is_alive, read_holder
from supervisor.journal.requests import Request, What
from supervisor.rundir import RunDir
from supervisor.settings import Settings, frozen
from supervisor.telling.copies import known_saves
from supervisor.telling.incident_facts import Known
from supervisor.telling.record import known_of, watched_or_not
from supervisor.telling.status import Status, read_status

ANSWER_S = 10.0
"""How long a command waits for the controller's answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as it can be read from its directory."""

    run: RunDir
    settings: Settings
    history: History
    status: Status | None
    alive: bool
    now: float

    @property
    def known(self) -> Known:
        """What stories may use."""
        held = self.status.held if self.status and self.status.asks else ""
        known = known_of(self.settings.shape(), self.now, held)
        return watched_or_not(known, self.run, self.settings, self.status, alive=self.alive)

    @property
    def known_with_saves(self) -> Known:
        """The same, with what the store has told."""
        return replace(self.known, checkpoints=known_saves(self.status.view)) if self.status else self.known


def entries_of(folder: str) -> list[Stamped]:
    """All that the journal in this folder says. Raises UserError."""
    try:
        return journal.read(folder)
    except journal.JournalDamagedError as error:
        raise UserError(f"{folder}: {error}. See: relight runbook journal-damaged", OWN_FAULT_EXIT) from None


def look(name: str) -> Seen:
    """Read a run. Raises UserError."""
    run = RunDir.of(name).must_exist()
    history = fold_all(History(run=os.path.basename(run.root)), entries_of(run.journal))
    now = time.time()
    holder = read_holder(run.path("lease"))
    alive = holder is not None and is_alive(holder, now)
    return Seen(run, frozen(run.root), history, read_status(run), alive, now)


def who() -> str:
    """The person at the keyboard, as the system knows them."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return f"uid {os.getuid()}@{socket.gethostname()}"


def plan_id(run: str, given: str) -> str:
    """The id of a plan as a person typed it. Raises UserError."""
    if not given or set(given.lower()) - set("0123456789abcdef"):
        raise UserError(f"--plan {given}: a plan's id is of the digits 0-9 and a-f. See: relight plan {run}")
    return given.lower()


def spans(given: tuple[str, ...]) -> Spans:
    """FIRST:END from the command line. Raises UserError."""
    found = []
    for text in given:
        match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text, re.ASCII)
        if match is None or int(match[1]) >= int(match[2]):
            raise UserError(f"--skip-samples {text}: wanted FIRST:END, two sample numbers, END itself not left out")
        found.append((int(match[1]), int(match[2])))
    return tuple(found)


def ask(
    seen: Seen,
    what: What,
    *,
    digest: str = "",
    why: str = "",
    checkpoint: str = "",
    spares: tuple[str, ...] = (),
    keep_nodes: tuple[str, ...] = (),
    skip_samples: Spans = (),
    after_save: bool = False,
    next_job: bool = False,
    nodes: tuple[str, ...] = (),
) -> int:
    """File a request and wait for its answer; the exit code. With no controller alive it waits there: exit 3.

    Raises UserError for what no controller would read.
    """
    try:
        request = Request(
            id=requests.new_id(seen.now),
            what=what,
            who=who(),
            at=seen.now,
            digest=digest,
            why=why,
            checkpoint=checkpoint,
            spares=spares,
            keep_nodes=keep_nodes,
            skip_samples=skip_samples,
            after_save=after_save,
            next_job=next_job,
            nodes=nodes,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]} = {str(first['input'])[:80]!r}: {first['msg']}") from None
    try:
        requests.file(seen.run.root, request)
    except ValueError as error:
        raise UserError(f"{what}: {error}") from None
    if not seen.alive:
        click.echo(f"filed; no controller of {seen.history.run} is alive: the next one answers it")
        return NOT_YET_EXIT
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until:
        answer = requests.read_answer(seen.run.root, request.id)
        if answer is not None:
            click.echo(answer.text if answer.outcome == "done" else f"relight: {answer.text}", err=answer.exit != 0)
            return answer.exit
        time.sleep(0.05)
    click.echo(f"filed; not answered within {ANSWER_S:.0f} s. See: relight status {seen.history.run}")
    return NOT_YET_EXIT
