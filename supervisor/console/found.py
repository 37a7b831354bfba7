"""What every route starts from: the run that is meant, its reading, who asks; and how a failure is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request

from supervisor.console.audit import Audit
from supervisor.console.limits import Limits
from supervisor.console.reading import Follower, Reading, Runs
from supervisor.console.tokens import Grant, Tokens


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


TROUBLES: dict[int | str, dict[str, Any]] = {
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


def parts_of(request: Request) -> Parts:
    """What the routes work with."""
    found = request.app.state.parts
    assert isinstance(found, Parts)  # noqa: S101 - set by `build`
    return found


def _follower(run: Annotated[str, Path(max_length=200)], request: Request) -> Follower:
    """Raises HTTPException 404."""
    found = parts_of(request).runs.find(run)
    if found is None:
        raise HTTPException(404, "no run of that name is here; /api/runs lists them")
    return found


def _reading(follower: Annotated[Follower, Depends(_follower)]) -> Reading:
    return follower.read()


def grant_of(request: Request) -> Grant:
    """Whose token this call came with."""
    grant = request.state.grant
    assert isinstance(grant, Grant)  # noqa: S101 - the doors let nobody else through
    return grant


Run = Annotated[Follower, Depends(_follower)]
Read = Annotated[Reading, Depends(_reading)]
