"""An S3 server on loopback, for tests and figures: moto's, in a process of its own, with one empty bucket."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from supervisor.errors import UserError

BUCKET = "relight"
START_S = 60.0
"""Seconds until it must listen; importing moto takes 2 to 5 on a busy machine."""
_LISTENS = re.compile(rb"Running on (http://127\.0\.0\.1:[0-9]+)")


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens, and what `open_objects` needs to speak to it."""

    endpoint: str
    config: Mapping[str, str]

    def url(self, prefix: str) -> str:
        """A place in its bucket."""
        return f"s3://{BUCKET}/{prefix}"


def has_moto() -> bool:
    """Is moto there, with what its server needs?"""
    return all(importlib.util.find_spec(name) for name in ("moto", "flask", "flask_cors"))


@contextmanager
def s3_server() -> Iterator[Server]:
    """Start it, and end it by its pid. Raises UserError when it is not installed or does not start."""
    if not has_moto():
        raise UserError("an S3 server for tests needs moto; pip install 'moto[s3]' flask flask-cors")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
    child = subprocess.Popen(
        [sys.executable, "-m", "supervisor.bench.s3_in_order"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        yield _server(child)
    finally:
        child.kill()
        child.wait()


def _server(child: subprocess.Popen[bytes]) -> Server:
    assert child.stderr is not None  # noqa: S101 - a pipe was asked for
    listening, found = threading.Event(), list[str]()
    threading.Thread(target=_follow, args=(child.stderr, found, listening), daemon=True).start()
    if not listening.wait(START_S) or not found:
        raise UserError("moto's server does not start")
    _create_bucket(found[0])
    config = {
        "endpoint": found[0],
        "region": "us-east-1",
        "access_key_id": "loopback",
        "secret_access_key": "loopback",
        "virtual_hosted_style_request": "false",
    }
    return Server(found[0], config)


def _follow(lines: IO[bytes], found: list[str], listening: threading.Event) -> None:
    """Read until it ends: a pipe that nobody empties would stop the server."""
    with lines:
        for line in lines:
            at = _LISTENS.search(line)
            if at:
                found.append(at[1].decode())
                listening.set()
    listening.set()


def _create_bucket(endpoint: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")  # noqa: S310 - loopback
    with opener.open(request, timeout=START_S) as answer:
        answer.read()
