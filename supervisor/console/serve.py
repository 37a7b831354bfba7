"""The process of the console: where it may listen, with which certificate, and that it never competes with a recovery."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.console import api, audit, tokens
from supervisor.console.doors import Doors
from supervisor.console.found import Parts
from supervisor.console.limits import Limits
from supervisor.console.reading import Runs
from supervisor.errors import UserError

NICE = 10
CONNECTIONS = 256
HEAD_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Where:
    """Where it listens and who may come. `plain`: without TLS on an address that others reach, behind a proxy that has it."""

    places: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8440
    cert: str = ""
    key: str = ""
    plain: bool = False
    tokens: str = ""
    audit: str = ""
    proxy: str = ""
    answer_s: float = 10.0


class HurriedProtocol(H11Protocol):
    """HTTP/1.1 whose clients have `head_s` to say what they want, with the first request and each that follows."""

    head_s = Limits().head_s
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the clock."""
        super().connection_made(transport)
        self._late = self.loop.call_later(self.head_s, transport.close)

    def data_received(self, data: bytes) -> None:
        """Stop the clock when a head is whole; start it with the first byte of the next one."""
        super().data_received(data)
        # uvicorn says that there is always a cycle; before the first head there is none.
        speaking = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
        if not speaking and self._late is not None:
            self._late.cancel()
            self._late = None
        elif speaking and self._late is None:
            self._late = self.loop.call_later(self.head_s, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)


def check(where: Where) -> None:
    """Is this a place to listen at? Raises UserError with what would be right."""
    path = where.tokens or tokens.default_path()
    if not tokens.read_grants(path):
        raise UserError(
            f"{path}: there are no tokens, so nobody could come in. Make one: relight token add NAME --role approver"
        )
    if bool(where.cert) != bool(where.key):
        raise UserError("--cert and --key go together: a certificate and its private key, as PEM files")
    if where.key:
        _check_key(where.key)
    if not _loopback(where.host) and not where.cert and not where.plain:
        raise UserError(
            f"--listen {where.host}: others reach this address, so it takes TLS: --cert FILE --key FILE. Stay on 127.0.0.1 and "
            "come by `ssh -L`; or --plain-http, where whoever is on the wire reads the tokens and may approve with them"
        )


def _check_key(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if mode & stat.S_IRWXO:
        raise UserError(f"{path}: others may read or change this private key (chmod 600)")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def application(where: Where, limits: Limits) -> Doors:
    """The API behind its doors. Raises OSError when the audit log cannot be written."""
    keys = tokens.Tokens(where.tokens or tokens.default_path())
    log = audit.Audit(where.audit or audit.default_path())
    parts = Parts(Runs(where.places), keys, log, limits, where.answer_s)
    return Doors(api.build(parts), keys, log, limits, tls=bool(where.cert))


def server(where: Where, limits: Limits | None = None) -> uvicorn.Server:
    """Ready to run. Raises UserError."""
    check(where)
    limits = limits or Limits()
    protocol = type("Protocol", (HurriedProtocol,), {"head_s": limits.head_s})
    try:
        app = application(where, limits)
        config = uvicorn.Config(
            app,
            host=where.host,
            port=where.port,
            http=protocol,
            ws="none",
            lifespan="off",
            log_level="error",  # a warning a bad request would let anybody fill a disk; the audit log has them, counted
            access_log=False,
            server_header=False,
            proxy_headers=bool(where.proxy),  # else anybody could write another address into the audit log
            forwarded_allow_ips=where.proxy or None,
            limit_concurrency=CONNECTIONS,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=2,
            ssl_certfile=Path(where.cert) if where.cert else None,
            ssl_keyfile=Path(where.key) if where.key else None,
        )
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise UserError(f"the console cannot start: {error.strerror or error}") from None
    return uvicorn.Server(config)


def bound(where: Where) -> socket.socket:
    """The socket it listens at. Raises UserError."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        raise UserError(f"--listen {where.host}:{where.port}: {error.strerror}") from None


def run(where: Where, tell: Callable[[str], None]) -> int:
    """Serve until it is told to end; `tell` gets the address once it listens. Raises UserError."""
    ready = server(where)
    with bound(where) as listening:
        host, port = listening.getsockname()[:2]
        tell(f"{'https' if where.cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/")
        os.nice(NICE)
        ready.run(sockets=[listening])
    return 0
