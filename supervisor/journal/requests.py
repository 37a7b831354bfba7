"""Requests: what people ask of a controller. Filed whole into the run directory, answered beside it.

A request filed while no controller lives waits; its sender is told so.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from supervisor.durable import create_whole


def _in_order(span: tuple[int, int]) -> tuple[int, int]:
    """Raises ValueError."""
    if span[0] >= span[1]:
        raise ValueError("the end of a span lies behind its first sample")
    return span


Text = Annotated[str, Field(max_length=2000)]
Sample = Annotated[int, Field(ge=0, le=2**62)]
Span = Annotated[tuple[Sample, Sample], AfterValidator(_in_order)]
What = Literal["approve", "refuse", "choose", "pause", "resume", "halt", "stop", "unbar"]


REQUEST_MAX: Final = 1 << 20
"""Bytes of a request; 10,000 names of nodes take 100 kB and more."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `digest` names a plan; `why` is a person's reason."""

    id: Annotated[str, Field(pattern=r"^[0-9]{14}-[0-9a-f]{8}$")]
    what: What
    who: Text
    at: float
    origin: Text = "cli"
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{0,32}$")] = ""
    why: Text = ""
    checkpoint: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,200}$")] = ""
    spares: tuple[Text, ...] = ()
    keep_nodes: tuple[Text, ...] = ()
    skip_samples: Annotated[tuple[Span, ...], Field(max_length=64)] = ()
    after_save: bool = False
    next_job: bool = False
    nodes: Annotated[tuple[Text, ...], Field(max_length=10_000)] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the controller made of a request; `exit` is the exit code for the sender."""

    id: str
    outcome: Literal["done", "refused"]
    text: str
    exit: int


_REQUEST = TypeAdapter(Request)
_ANSWER = TypeAdapter(Answer)


def new_id(now: float) -> str:
    """A name that sorts by time and is never used twice."""
    return f"{int(now * 1000):014d}-{secrets.token_hex(4)}"


def file(run_dir: str, request: Request) -> None:
    """File a request. Raises OSError, and ValueError for one that is too long to be read."""
    data = json.dumps({"schema": 1, **asdict(request)}).encode()
    if len(data) > REQUEST_MAX:
        raise ValueError(f"a request of {len(data)} bytes; {REQUEST_MAX} at most")
    create_whole(os.path.join(run_dir, "requests", f"{request.id}.json"), data)


def _read(path: str) -> Request:
    """Raises OSError, ValueError (pydantic's too), RecursionError. A pipe is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        raw = json.loads(opened.read(REQUEST_MAX))
    if isinstance(raw, dict):
        raw.pop("schema", None)
    return _REQUEST.validate_python(raw)


def pending(run_dir: str) -> list[Request]:
    """The requests that wait, oldest first. One that can't be read is set aside under requests/bad/."""
    folder = os.path.join(run_dir, "requests")
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        path = os.path.join(folder, name)
        try:
            request = _read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            request = None
        if request is not None and name == f"{request.id}.json":  # under another name it would never be taken away
            found.append(request)
        else:
            os.makedirs(os.path.join(folder, "bad"), mode=0o700, exist_ok=True)
            os.replace(path, os.path.join(folder, "bad", f"{secrets.token_hex(4)}-{name[-100:]}"))
    return found


def answer(run_dir: str, reply: Answer) -> None:
    """Leave the answer and take the request away; safe to do again. Raises OSError."""
    folder = os.path.join(run_dir, "requests")
    create_whole(os.path.join(folder, "answers", f"{reply.id}.json"), json.dumps(asdict(reply)).encode())
    try:
        os.unlink(os.path.join(folder, f"{reply.id}.json"))
    except FileNotFoundError:
        return


def read_answer(run_dir: str, request_id: str) -> Answer | None:
    """The answer to a request, when there is one."""
    path = os.path.join(run_dir, "requests", "answers", f"{request_id}.json")
    try:
        with open(path, "rb") as opened:
            return _ANSWER.validate_json(opened.read(65_536))
    except (FileNotFoundError, ValidationError):
        return None
