"""The routes that read: one document each."""

# ruff: noqa: FAST003 - `{run}` is taken by the dependency that finds the run

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from supervisor.console import documents, events, shapes
from supervisor.console import nodes as wall
from supervisor.console.answering import document, text, trouble
from supervisor.console.found import TROUBLES, Read, Run, grant_of, parts_of
from supervisor.console.losses import WINDOW, WINDOW_MAX, LossesDocument, losses
from supervisor.console.reading import Reading, UnreadableError
from supervisor.console.tokens import Role
from supervisor.reporting import beside
from supervisor.telling.document import Block, html, markdown
from supervisor.telling.report import report

Number = Annotated[int, Path(ge=1, le=10**9)]
reads = APIRouter(prefix="/api/runs", responses={k: v for k, v in TROUBLES.items() if k not in {408, 413}})


@reads.get("", response_model=shapes.RunsDocument)
def all_runs(request: Request) -> Response:
    """All runs, one row each."""
    rows = []
    for name, follower in parts_of(request).runs.all().items():
        try:
            rows.append(documents.glance(name, follower.read()))
        except UnreadableError as error:
            rows.append(shapes.Glance(name, error=str(error)))
    grant = grant_of(request)
    you = shapes.You(grant.name, grant.role.value, grant.may(Role.APPROVER))
    return document(shapes.RunsDocument(tuple(rows), you))


@reads.get("/{run}", response_model=shapes.StatusDocument)
def status(run: str, reading: Read) -> Response:
    """What a run is doing now."""
    return document(documents.status(run, reading))


@reads.get("/{run}/nodes", response_model=wall.NodesDocument)
def nodes(reading: Read) -> Response:
    """Slots by pipeline stage and replica, spares, quarantined nodes, and why they are not well."""
    return document(wall.nodes(reading))


@reads.get("/{run}/plan", response_model=shapes.PlanDocument)
def plan(reading: Read) -> Response:
    """The open plan: facts, page, digest, and what is different from the one before it."""
    return document(documents.plan(reading))


@reads.get("/{run}/plan.txt", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def plan_text(reading: Read) -> Response:
    """The open plan as one page of text."""
    return text(documents.plan(reading).text)


@reads.get("/{run}/story", response_model=shapes.TextDocument)
def story(reading: Read) -> Response:
    """The story of the run."""
    return document(documents.story(reading))


@reads.get("/{run}/story.txt", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def story_text(reading: Read) -> Response:
    """The story of the run as text."""
    return text(documents.story(reading).text)


@reads.get("/{run}/incidents", response_model=shapes.IncidentsDocument)
def incidents(reading: Read) -> Response:
    """All incidents, oldest first."""
    return document(documents.incidents(reading))


@reads.get("/{run}/incidents/{number}", response_model=shapes.IncidentDocument)
def incident(number: Number, reading: Read) -> Response:
    """One incident with its evidence, cost and story."""
    try:
        return document(documents.incident(reading, number))
    except LookupError as error:
        return trouble(404, str(error.args[0]))


@reads.get("/{run}/line", response_model=shapes.LineDocument)
def line_of_time(reading: Read) -> Response:
    """Attempts and incidents on the line of time."""
    return document(documents.line(reading))


@reads.get(
    "/{run}/incidents/{number}/report.md", response_class=Response, responses={200: {"content": {"text/markdown": {}}}}
)
def report_markdown(number: Number, reading: Read) -> Response:
    """The report of an incident as Markdown, ready for a post-mortem."""
    return _report(number, reading, markdown, "text/markdown")


@reads.get(
    "/{run}/incidents/{number}/report.html", response_class=Response, responses={200: {"content": {"text/html": {}}}}
)
def report_html(number: Number, reading: Read) -> Response:
    """The same as one HTML file: no script, and nothing is fetched."""
    return _report(number, reading, html, "text/html")


def _report(number: int, reading: Reading, write: Callable[[list[Block]], str], kind: str) -> Response:
    tokens, said = reading.settings.run.tokens_per_sample, reading.sayings.get(number, ())
    try:
        more = beside(reading.run, reading.history, number, said, tokens)
        text = write(report(reading.history, number, reading.known, more))
    except LookupError as error:
        return trouble(404, str(error.args[0]))
    return Response(text.encode("utf-8", "replace"), media_type=f"{kind}; charset=utf-8")


@reads.get("/{run}/checkpoints", response_model=shapes.CheckpointsDocument)
def checkpoints(reading: Read) -> Response:
    """Saves in the store, newest first, and those being written."""
    return document(documents.checkpoints(reading))


@reads.get("/{run}/drills", response_model=shapes.DrillsDocument)
def drills(reading: Read) -> Response:
    """The newest drills, the newest first."""
    return document(documents.drills(reading))


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


@reads.get("/{run}/ledger", response_model=shapes.LedgerDocument)
def ledger(reading: Read) -> Response:
    """Both ledgers, where the time went, and how often people agreed with the plans."""
    return document(documents.ledgers(reading))


@reads.get("/{run}/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def changes(run: str, follower: Run, request: Request) -> Response:
    """Server-sent events: a row as in /api/runs at once and whenever something in it changes."""
    parts, grant = parts_of(request), grant_of(request)
    if not request.app.state.streams.open(grant.id):
        return trouble(429, "too many streams with this token; close one", {"retry-after": "5"})

    async def counted() -> AsyncIterator[bytes]:
        try:
            async for line in events.stream(run, follower, lambda: parts.tokens.still(grant)):
                yield line
        finally:
            request.app.state.streams.close(grant.id)

    return StreamingResponse(counted(), media_type="text/event-stream")
