"""Requests filed by the console, exactly as the command line files them; and the controller's answer, waited for a while."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Literal

from policies.facts import Spans
from supervisor.console.changes import since
from supervisor.console.documents import open_digest
from supervisor.console.reading import SCHEMA, Follower, Reading
from supervisor.errors import REFUSED_EXIT
from supervisor.journal import requests
from supervisor.journal.requests import Answer, Request, What

ANSWER_S = 10.0
NEW_PLAN_S = 3.0
LOOK_S = 0.05


class CrowdedError(Exception):
    """So many requests wait in this run that no more are filed: the controller reads them all at every look."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants of a run, and who they are."""

    what: What
    who: str
    digest: str = ""
    why: str = ""
    checkpoint: str = ""
    spares: tuple[str, ...] = ()
    keep_nodes: tuple[str, ...] = ()
    skip_samples: Spans = ()


@dataclass(frozen=True, slots=True)
class AnswerDocument:
    """What came of a request. `filed`: no answer within the time; it stays there and is answered when it is read.

    `exit` is the exit code that the command line would have ended with: 0 done, 2 bad, 3 not answered yet, 4 refused.
    `plan` is the digest of the plan that is open now, `changed` what is different from the one that was meant.
    """

    id: str | None
    state: Literal["done", "refused", "filed"]
    text: str
    exit: int
    plan: str | None = None
    changed: tuple[str, ...] = ()
    schema: int = SCHEMA


def request_of(wish: Wish, now: float) -> Request:
    """The request to file. Raises pydantic.ValidationError for what no controller would read."""
    return Request(
        id=requests.new_id(now),
        what=wish.what,
        who=wish.who,
        at=now,
        origin="console",
        digest=wish.digest,
        why=wish.why,
        checkpoint=wish.checkpoint,
        spares=wish.spares,
        keep_nodes=wish.keep_nodes,
        skip_samples=wish.skip_samples,
    )


def stale(reading: Reading, wish: Wish) -> AnswerDocument | None:
    """With no controller alive that could judge: an answer to another plan than the open one would only lie there."""
    now = open_digest(reading)
    if reading.alive or not wish.digest or (now or "").startswith(wish.digest):
        return None
    text = f"plan {wish.digest} is not the open one, and no controller is alive"
    return AnswerDocument(
        None, "refused", text, REFUSED_EXIT, now, since(reading.plans, reading.withdrawn, wish.digest, now)
    )


async def ask(follower: Follower, request: Request, pending: int, answer_s: float = ANSWER_S) -> AnswerDocument:
    """File a request and wait for its answer. Raises CrowdedError, OSError, UnreadableError."""
    before = await asyncio.to_thread(follower.read, fresh=True)
    await asyncio.to_thread(_file, before, request, pending)
    if not before.alive:
        text = f"filed; no controller of {before.history.run} is alive: the next one answers it"
        return AnswerDocument(request.id, "filed", text, 3, open_digest(before))
    answer = await _answer(before.run.root, request.id, answer_s)
    if answer is None:
        text = f"filed; not answered within {answer_s:.0f} s. See: relight status {before.history.run}"
        return AnswerDocument(request.id, "filed", text, 3, open_digest(before))
    after = await asyncio.to_thread(follower.read, fresh=True)
    changed: tuple[str, ...] = ()
    if request.what == "choose" and answer.outcome == "done":
        after = await _another_plan(follower, open_digest(before))
    now = open_digest(after)
    seen = request.digest or open_digest(before) or ""
    if seen and not (now or "").startswith(seen) and (request.what == "choose" or answer.outcome == "refused"):
        changed = since(after.plans, after.withdrawn, seen, now)
    return AnswerDocument(request.id, answer.outcome, answer.text, answer.exit, now, changed)


def _file(reading: Reading, request: Request, pending: int) -> None:
    waiting = sum(1 for name in os.listdir(reading.run.path("requests")) if name.endswith(".json"))
    if waiting >= pending:
        raise CrowdedError(f"{waiting} requests of {reading.history.run} wait already; no more are filed")
    requests.file(reading.run.root, request)


async def _answer(root: str, request_id: str, answer_s: float) -> Answer | None:
    """The answer is a file on a shared file system: there is nothing to wait on but its name."""
    until = asyncio.get_running_loop().time() + answer_s
    while asyncio.get_running_loop().time() < until:
        found = await asyncio.to_thread(requests.read_answer, root, request_id)
        if found is not None:
            return found
        await asyncio.sleep(LOOK_S)
    return None


async def _another_plan(follower: Follower, before: str | None) -> Reading:
    """The first reading whose open plan is another one, or the last within a short while: a choice may change nothing."""
    until = asyncio.get_running_loop().time() + NEW_PLAN_S
    while True:
        reading = await asyncio.to_thread(follower.read, fresh=True)
        if open_digest(reading) not in {before, None} or asyncio.get_running_loop().time() >= until:
            return reading
        await asyncio.sleep(LOOK_S)
