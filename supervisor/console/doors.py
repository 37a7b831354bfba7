"""The doors: whatever comes in passes here first. Who is it, may they, not too much, not too long; and what goes out is marked.

Only a bearer token in the Authorization header counts, and there are no cookies: a foreign page that makes a browser call us
has no token to send with it, so there is nothing to forge (CSRF), nor anything to gain by DNS rebinding.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.console.audit import Audit
from supervisor.console.limits import Bucket, Buckets, Limits
from supervisor.console.page_files import FILES, POLICY
from supervisor.console.tokens import Grant, Role, Tokens
from supervisor.telling.document import POLICY as REPORT_POLICY
from supervisor.telling.say import clean

OPEN_PATHS = frozenset(FILES)
"""What may be seen without a token: the page, which holds nothing of any run."""
READING = frozenset({"GET", "HEAD"})
NO_PAGE = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
REPORT_PATH = "/report.html"
REPORT = REPORT_POLICY.encode() + b"; frame-ancestors 'none'; sandbox"
"""A report has one style, named by its hash, and nothing else; `sandbox`: whatever it were to hold could not act as us."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
TLS_HEADER = (b"strict-transport-security", b"max-age=31536000")


class Doors:
    """ASGI around the API. What it lets through carries the Grant in `scope["state"]["grant"]` and `["source"]`."""

    def __init__(self, app: ASGIApp, tokens: Tokens, audit: Audit, limits: Limits, *, tls: bool = False) -> None:
        self._app, self._tokens, self._audit, self._limits = app, tokens, audit, limits
        self._headers = (*HEADERS, TLS_HEADER) if tls else HEADERS
        self._reads, self._asks = Buckets(*limits.reads), Buckets(*limits.asks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            path = str(scope["path"])
            policy = POLICY if path in OPEN_PATHS else REPORT if path.endswith(REPORT_PATH) else NO_PAGE
            await self._http(scope, receive, self._marked(send, policy))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        source = clean(str((scope.get("client") or ("unknown", 0))[0]), 64)  # behind a proxy, what a header says
        call = clean(f"{method} {path}", 200)
        grant = None
        if path not in OPEN_PATHS or method not in READING:
            grant = self._whose(scope)
            if grant is None:
                self._audit.refused("", source, call, "no valid token")
                await _say(send, HTTPStatus.UNAUTHORIZED, "a valid token is needed", (b"www-authenticate", b"Bearer"))
                return
            role = Role.VIEWER if method in READING else Role.APPROVER
            if not grant.may(role):
                self._audit.refused(grant.name, source, call, f"role {grant.role} may not")
                await _say(send, HTTPStatus.FORBIDDEN, f"the role {grant.role} may not do this; {role} may")
                return
            bucket = self._bucket(grant, method)
            if not bucket.take():
                self._audit.refused(grant.name, source, call, "too many calls")
                later = (b"retry-after", str(bucket.wait_s).encode())
                await _say(send, HTTPStatus.TOO_MANY_REQUESTS, "too many calls with this token; wait a little", later)
                return
        body = await self._body(receive)
        if isinstance(body, HTTPStatus):
            await _say(
                send, body, f"a body may have {self._limits.body_bytes} bytes, within {self._limits.body_s:.0f} s"
            )
            return
        scope.setdefault("state", {}).update({"grant": grant, "source": source})
        await self._app(scope, _again(body, receive), send)

    def _whose(self, scope: Scope) -> Grant | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer":
            return None
        return self._tokens.find(token.strip().decode("ascii", "replace"))

    def _bucket(self, grant: Grant, method: str) -> Bucket:
        return (self._reads if method in READING else self._asks).of(grant.id)

    async def _body(self, receive: Receive) -> bytes | HTTPStatus:
        """The whole body; or why it is not taken: too large, too slow, gone."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return HTTPStatus.BAD_REQUEST
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._limits.body_bytes:
                        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT

    def _marked(self, send: Send, policy: bytes) -> Send:
        more = (*self._headers, (b"content-security-policy", policy))

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return marked


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, then what comes: that the client is gone."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _say(send: Send, status: HTTPStatus, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": text}).encode()
    fixed = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status.value, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})
