"""The routes that ask: each files a request in a person's name and answers with what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from policies.facts import Spans
from supervisor.console import wishes as given
from supervisor.console.answering import document, trouble
from supervisor.console.asking import AnswerDocument, CrowdedError, Wish, ask, request_of, stale
from supervisor.console.found import TROUBLES, Run, Trouble, grant_of, parts_of
from supervisor.console.reading import Follower
from supervisor.journal.requests import What

CODES = {0: 200, 2: 422, 3: 202, 4: 409}
"""HTTP's word for the exit code of the same command; any other is 409."""
ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {"model": AnswerDocument, "description": "Filed; not answered yet."},
    409: {
        "model": AnswerDocument,
        "description": "Refused by the controller, or stale: `changed` says what is different.",
    },
    422: {"model": AnswerDocument | Trouble, "description": "A value is none that can be taken."},
}
asks = APIRouter(prefix="/api/runs/{run}", responses={**TROUBLES, **ANSWERS})


async def _asked(
    request: Request,
    follower: Follower,
    what: What,
    *,
    digest: str = "",
    why: str = "",
    change: given.Change | None = None,
    skip: Spans = (),
) -> Response:
    """File a request in this person's name, put it on record before and after, and answer with what came of it."""
    parts, grant, source = parts_of(request), grant_of(request), request.state.source
    wish = Wish(
        what=what,
        who=f"{grant.name}@{source}",
        digest=digest,
        why=why,
        checkpoint=change.checkpoint if change else "",
        spares=change.spares if change else (),
        keep_nodes=change.keep_nodes if change else (),
        skip_samples=change.spans if change else skip,
    )

    def record(outcome: str, id_: str | None = None, **more: object) -> None:
        run = follower.run.root
        parts.audit.done(grant.name, source, what, outcome, run=run, request=id_, digest=digest, why=why, **more)

    reading = await asyncio.to_thread(follower.read, fresh=True)
    filed = request_of(wish, reading.now)
    record("asked", filed.id)  # what cannot be put on record is not done: OSError ends in 503
    answer = stale(reading, wish)
    if answer is None:
        try:
            answer = await ask(follower, filed, parts.limits.pending, parts.answer_s)
        except CrowdedError as error:
            record("crowded", filed.id)
            return trouble(429, str(error), {"retry-after": "10"})
    record(answer.state, filed.id, text=answer.text)
    return document(answer, CODES.get(answer.exit, 409))


@asks.post("/plan/approve", response_model=AnswerDocument)
async def approve(body: given.Approval, request: Request, follower: Run) -> Response:
    """Say yes to the plan of this digest."""
    return await _asked(request, follower, "approve", digest=body.digest, why=body.why)


@asks.post("/plan/refuse", response_model=AnswerDocument)
async def refuse(body: given.Refusal, request: Request, follower: Run) -> Response:
    """Say no to the plan of this digest. The run halts."""
    return await _asked(request, follower, "refuse", digest=body.digest, why=body.why)


@asks.post("/plan/change", response_model=AnswerDocument)
async def change_plan(body: given.Change, request: Request, follower: Run) -> Response:
    """Choose another checkpoint or spare, keep a node, leave samples out; `changed` says what that made of the plan."""
    return await _asked(request, follower, "choose", why=body.why, change=body)


@asks.post("/pause", response_model=AnswerDocument)
async def pause(body: given.Because, request: Request, follower: Run) -> Response:
    """Start and stop nothing until resumed; keep watching."""
    return await _asked(request, follower, "pause", why=body.why)


@asks.post("/resume", response_model=AnswerDocument)
async def resume(body: given.Resumption, request: Request, follower: Run) -> Response:
    """Lift a pause or a halt."""
    return await _asked(request, follower, "resume", why=body.why, skip=tuple(body.skip_samples))


@asks.post("/halt", response_model=AnswerDocument)
async def halt(body: given.Because, request: Request, follower: Run) -> Response:
    """Stop the attempt and start nothing more."""
    return await _asked(request, follower, "halt", why=body.why)


@asks.post("/stop", response_model=AnswerDocument)
async def stop(body: given.Because, request: Request, follower: Run) -> Response:
    """Have the ranks save, then stop; the run can go on later."""
    return await _asked(request, follower, "stop", why=body.why)
