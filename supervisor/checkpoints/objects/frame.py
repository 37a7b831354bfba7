"""What is really written: one head line that lets a reader see a short or rotten document, then the document itself.

The head also names the writing (`nonce`): a writer whose reply was lost finds out by reading whether it was its own
that landed, and equal contents that were put twice still have two versions (an S3 ETag is a sum of the content).
To read one by hand: `tail -n +2 FILE`.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

import xxhash

HEAD_LIMIT: Final = 128
"""Bytes that no head line exceeds."""
_HEAD = re.compile(rb"relight 1 (doc|gone) ([0-9]{1,9}) ([0-9a-f]{32}) ([0-9a-f]{16})\n")


@dataclass(frozen=True, slots=True)
class Framed:
    """A document as written. `data` None: the mark of a deletion."""

    data: bytes | None
    nonce: str


@dataclass(frozen=True, slots=True)
class Unsound:
    """Not what was put, and why."""

    why: str


def fresh_nonce() -> str:
    """A name for one writing that nobody else draws: 64 bits."""
    return secrets.token_hex(8)


def pack(data: bytes | None, nonce: str) -> bytes:
    """The bytes to write."""
    kind, body = (b"gone", b"") if data is None else (b"doc", data)
    return b"relight 1 %s %d %s %s\n" % (kind, len(body), _sum(body), nonce.encode()) + body


def unpack(raw: bytes) -> Framed | Unsound:
    """Check and open what was read."""
    head = _HEAD.match(raw)
    if head is None:
        return Unsound("is empty" if not raw else "does not begin as a document of relight, or was cut there")
    body, size = raw[head.end() :], int(head[2])
    if len(body) != size:
        return Unsound(f"has {len(body)} bytes, not {size}")
    if _sum(body) != head[3]:
        return Unsound("is not what was put: its sum is another")
    return Framed(None if head[1] == b"gone" else body, head[4].decode())


def kind_of(head: bytes) -> str | None:
    """`doc` or `gone`, from the first `HEAD_LIMIT` bytes alone; None when they are no head."""
    found = _HEAD.match(head)
    return found[1].decode() if found else None


def _sum(body: bytes) -> bytes:
    return xxhash.xxh3_128(body).hexdigest().encode()
