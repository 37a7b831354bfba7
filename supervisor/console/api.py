"""The HTTP API. Each route reads a document or files a request; who may is settled at the doors, before any of this."""

# ruff: noqa: FAST003 - `{run}` is taken by the dependency that finds the run

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import Response, StreamingResponse

from policies.facts import Spans
from supervisor.console import documents, events
from supervisor.console import nodes as wall
from supervisor.console import wishes as given
from supervisor.console.answering import document, text, trouble
from supervisor.console.asking import AnswerDocument, CrowdedError, Wish, ask, request_of, stale
from supervisor.console.audit import Audit
from supervisor.console.limits import Limits
from supervisor.console.losses import WINDOW, WINDOW_MAX, LossesDocument, losses
from supervisor.console.metrics import CONTENT_TYPE, exposition
from supervisor.console.reading import Follower, Reading, Runs, UnreadableError
from supervisor.console.tokens import Grant, Tokens
from supervisor.journal.requests import What

INDEX = "relight console. The API is below /api and described in /api/openapi.json; each call needs a token: relight token add.\n"
CODES = {0: 200, 2: 422, 3: 202, 4: 409}
"""HTTP's word for the exit code of the same command; any other is 409."""
BEARER = HTTPBearer(auto_error=False, description="`relight token add NAME`; viewers read, approvers also ask.")
Number = Annotated[int, Path(ge=1, le=10**9)]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why not, in one line."""

    detail: str


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes work with."""

    runs: Runs
    tokens: Tokens
    audit: Audit
    limits: Limits
    answer_s: float


_TROUBLES: dict[int | str, dict[str, Any]] = {
    400: {"model": Trouble, "description": "It cannot be understood."},
    401: {"model": Trouble, "description": "No valid token."},
    403: {"model": Trouble, "description": "The token's role may not."},
    404: {"model": Trouble, "description": "No such thing."},
    408: {"model": Trouble, "description": "The body came too slowly."},
    413: {"model": Trouble, "description": "The body is too large."},
    422: {"model": Trouble, "description": "A value is none that can be taken."},
    429: {"model": Trouble, "description": "Too many calls, or too many requests wait."},
    503: {"model": Trouble, "description": "The run's directory or the audit log cannot be used now."},
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {"model": AnswerDocument, "description": "Filed; not answered yet."},
    409: {
        "model": AnswerDocument,
        "description": "Refused by the controller, or stale: `changed` says what is different.",
    },
    422: {"model": AnswerDocument | Trouble, "description": "A value is none that can be taken."},
}


def _parts(request: Request) -> Parts:
    found = request.app.state.parts
    assert isinstance(found, Parts)  # noqa: S101 - set by `build`
    return found


def _follower(run: Annotated[str, Path(max_length=200)], request: Request) -> Follower:
    """Raises HTTPException 404."""
    found = _parts(request).runs.find(run)
    if found is None:
        raise HTTPException(404, "no run of that name is here; /api/runs lists them")
    return found


def _reading(follower: Annotated[Follower, Depends(_follower)]) -> Reading:
    return follower.read()


Run = Annotated[Follower, Depends(_follower)]
Read = Annotated[Reading, Depends(_reading)]
reads = APIRouter(prefix="/api/runs", responses={k: v for k, v in _TROUBLES.items() if k not in {408, 413}})
asks = APIRouter(prefix="/api/runs/{run}", responses={**_TROUBLES, **_ANSWERS})


@reads.get("", response_model=documents.RunsDocument)
def all_runs(request: Request) -> Response:
    """All runs, one row each."""
    rows = []
    for name, follower in _parts(request).runs.all().items():
        try:
            rows.append(documents.glance(name, follower.read()))
        except UnreadableError as error:
            rows.append(documents.Glance(name, error=str(error)))
    return document(documents.RunsDocument(tuple(rows)))


@reads.get("/{run}", response_model=documents.StatusDocument)
def status(run: str, reading: Read) -> Response:
    """What a run is doing now."""
    return document(documents.status(run, reading))


@reads.get("/{run}/nodes", response_model=wall.NodesDocument)
def nodes(reading: Read) -> Response:
    """Slots by pipeline stage and replica, spares, quarantined nodes, and why they are not well."""
    return document(wall.nodes(reading))


@reads.get("/{run}/plan", response_model=documents.PlanDocument)
def plan(reading: Read) -> Response:
    """The open plan: facts, page, digest, and what is different from the one before it."""
    return document(documents.plan(reading))


@reads.get("/{run}/plan.txt", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def plan_text(reading: Read) -> Response:
    """The open plan as one page of text."""
    return text(documents.plan(reading).text)


@reads.get("/{run}/story", response_model=documents.TextDocument)
def story(reading: Read) -> Response:
    """The story of the run."""
    return document(documents.story(reading))


@reads.get("/{run}/story.txt", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def story_text(reading: Read) -> Response:
    """The story of the run as text."""
    return text(documents.story(reading).text)


@reads.get("/{run}/incidents", response_model=documents.IncidentsDocument)
def incidents(reading: Read) -> Response:
    """All incidents, oldest first."""
    return document(documents.incidents(reading))


@reads.get("/{run}/incidents/{number}", response_model=documents.IncidentDocument)
def incident(number: Number, reading: Read) -> Response:
    """One incident with its evidence, cost and story."""
    try:
        return document(documents.incident(reading, number))
    except LookupError as error:
        return trouble(404, str(error.args[0]))


@reads.get("/{run}/checkpoints", response_model=documents.CheckpointsDocument)
def checkpoints(reading: Read) -> Response:
    """Saves in the store, newest first, and those being written."""
    return document(documents.checkpoints(reading))


@reads.get("/{run}/losses", response_model=LossesDocument)
def loss_curve(
    reading: Read,
    start: Annotated[
        int | None, Query(alias="from", ge=1, le=2**62, description="First step; the newest without it.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=WINDOW_MAX)] = WINDOW,
) -> Response:
    """Losses of a window of steps, with those apart that were done again."""
    return document(losses(reading, start, limit))


@reads.get("/{run}/ledger", response_model=documents.LedgerDocument)
def ledger(reading: Read) -> Response:
    """Both ledgers, where the time went, and how often people agreed with the plans."""
    return document(documents.ledgers(reading))


@reads.get("/{run}/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def changes(run: str, follower: Run, request: Request) -> Response:
    """Server-sent events: a row as in /api/runs at once and whenever something in it changes."""
    parts, grant = _parts(request), _grant(request)
    if not request.app.state.streams.open(grant.id):
        return trouble(429, "too many streams with this token; close one", {"retry-after": "5"})

    async def counted() -> AsyncIterator[bytes]:
        try:
            async for line in events.stream(run, follower, lambda: parts.tokens.still(grant)):
                yield line
        finally:
            request.app.state.streams.close(grant.id)

    return StreamingResponse(counted(), media_type="text/event-stream")


def _grant(request: Request) -> Grant:
    grant = request.state.grant
    assert isinstance(grant, Grant)  # noqa: S101 - the doors let nobody else through
    return grant


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
    parts, grant, source = _parts(request), _grant(request), request.state.source
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


def build(parts: Parts, make_id: Callable[[Any], str] | None = None) -> FastAPI:
    """The API without its doors."""
    app = FastAPI(
        title="relight console",
        version="1",
        description="One call a document; requests are filed in the run directory and answered by the controller.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page would be fetched from another host
        redoc_url=None,
        generate_unique_id_function=make_id or (lambda route: str(route.name)),
        dependencies=[Security(BEARER)],
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.streams = events.Streams(parts.limits.streams)
    app.include_router(reads)
    app.include_router(asks)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return text(INDEX)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **{k: _TROUBLES[k] for k in (401, 429)}},
    )
    def metrics() -> Response:
        """For Prometheus."""
        return Response(exposition(parts.runs), media_type=CONTENT_TYPE)

    @app.exception_handler(UnreadableError)
    async def unreadable(_: Request, error: Exception) -> Response:
        return trouble(503, str(error), {"retry-after": "5"})

    @app.exception_handler(OSError)
    async def no_disk(_: Request, error: Exception) -> Response:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return trouble(
            503, f"a file cannot be read or written: {reason}. The command line may still serve", {"retry-after": "5"}
        )

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def bad_values(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError | ValidationError) else []
        parts_ = [f"{'.'.join(str(p) for p in one['loc'])}: {one['msg']}" for one in found[:4]]
        return trouble(422, "; ".join(parts_) or "a value cannot be taken")

    @app.exception_handler(AnyHTTPException)
    async def no_such(_: Request, error: Exception) -> Response:
        assert isinstance(error, AnyHTTPException)  # noqa: S101 - registered for it
        return trouble(error.status_code, str(error.detail), dict(error.headers) if error.headers else None)

    return app
