"""The HTTP API, put together. Who may is settled at the doors, before any of this."""

from __future__ import annotations

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from supervisor.console import events
from supervisor.console.answering import trouble
from supervisor.console.asks import asks
from supervisor.console.found import TROUBLES, Parts
from supervisor.console.metrics import CONTENT_TYPE, exposition
from supervisor.console.page_files import FILES
from supervisor.console.reading import UnreadableError
from supervisor.console.reads import reads

BEARER = HTTPBearer(auto_error=False, description="`relight token add NAME`; viewers read, approvers also ask.")


def build(parts: Parts) -> FastAPI:
    """The API without its doors."""
    app = FastAPI(
        title="relight console",
        version="1",
        description="One call a document; requests are filed in the run directory and answered by the controller.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page would be fetched from another host
        redoc_url=None,
        generate_unique_id_function=lambda route: str(route.name),
        dependencies=[Security(BEARER)],
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.streams = events.Streams(parts.limits.streams)
    app.include_router(reads)
    app.include_router(asks)

    @app.get("/", include_in_schema=False)
    @app.get("/page/{name}", include_in_schema=False)
    def page(request: Request) -> Response:
        found = FILES.get(request.url.path)  # looked up, never joined to a path
        if found is None:
            raise HTTPException(404, "the page has no such file")
        return Response(found.body, media_type=found.media_type)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **{k: TROUBLES[k] for k in (401, 429)}},
    )
    def metrics() -> Response:
        """For Prometheus."""
        return Response(exposition(parts.runs), media_type=CONTENT_TYPE)

    _troubles(app)
    return app


def _troubles(app: FastAPI) -> None:
    """What goes wrong is told in one line, and never repeats what was sent."""

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
        told = [f"{'.'.join(str(p) for p in one['loc'])}: {one['msg']}" for one in found[:4]]
        return trouble(422, "; ".join(told) or "a value cannot be taken")

    @app.exception_handler(HTTPException)
    async def no_such(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        return trouble(error.status_code, str(error.detail), dict(error.headers) if error.headers else None)
