"""The port: small documents by key, with versions, and no way to replace what somebody else has changed meanwhile.

Manifests, marks, pointers and the completed list are such documents; the bulk of a save is not (see `bulk`).
What a caller must decide on comes back as a value. Nothing is ever answered from a read that failed: that is NotYet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NewType, Protocol

LIMIT: Final = 64 << 20
"""Bytes of the largest document. A manifest of 5,120 ranks has about 2 MB."""

MARKER: Final = ".relight-objects"
"""Says that a store is there. A mount that is gone leaves an empty folder, and a bucket that is gone says "no such
object": neither is an empty store."""
Version = NewType("Version", str)
"""Opaque; names one content of one key. Contents that are equal but were put twice have two versions."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,15}")
_KEY_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Found:
    """The document, whole, and the version to give to `put_if_version`."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Missing:
    """The store is there, could be read, and has no such document."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Read in full, for longer than any cache may lag, and not what was put. Only a person or `delete` ends it."""

    why: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """It can't be told now: ask again. After a put: it may have landed, or may still land; `get` tells."""

    why: str


@dataclass(frozen=True, slots=True)
class Written:
    """This call, and no other, put the document."""

    version: Version


@dataclass(frozen=True, slots=True)
class Conflict:
    """Refused: the key was not as this call required it. Nothing was changed by it."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """There is no such document now."""


@dataclass(frozen=True, slots=True)
class Made:
    """The store is there and keeps its promises."""


class Objects(Protocol):
    """One store. `within_s`: seconds after which the answer is NotYet. Safe to call from threads and processes.

    A key is one to sixteen names with slashes between them; another text raises ValueError, and so does a document of
    more than `LIMIT` bytes. No call raises for what the store or the network does, but for `make`.
    """

    def make(self, *, within_s: float) -> Made | NotYet:
        """Make the store, or find it. Raises UserError when what is there can't keep the promises below."""
        ...

    def get(self, key: str, *, within_s: float) -> Found | Missing | Broken | NotYet:
        """The document. It may be as old as the store's lag, never older than one that this object has seen."""
        ...

    def put_if_absent(self, key: str, data: bytes, *, within_s: float) -> Written | Conflict | NotYet:
        """Put it where there is none. Of all that try at once exactly one is Written. Durable when it returns."""
        ...

    def put_if_version(
        self, key: str, data: bytes, version: Version, *, within_s: float
    ) -> Written | Conflict | NotYet:
        """Replace the version that was read, and no other: compare and swap. Durable when it returns."""
        ...

    def keys(self, folder: str = "", *, within_s: float) -> tuple[str, ...] | NotYet:
        """The keys below a folder (no slash at its end; empty: all), sorted. It may lack what is newer than the lag."""
        ...

    def delete(self, key: str, *, within_s: float) -> Deleted | NotYet:
        """Remove it, whatever its version. What was not there is Deleted too."""
        ...


def checked(key: str) -> str:
    """The key. Raises ValueError for a text that is none."""
    if len(key) > _KEY_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f"{key[:80]!r} is no key of a store, such as seals/a0003-i0000040/COMMITTED")
    return key


def is_key(text: str) -> bool:
    """May it be a key? What else lies in a store is not ours."""
    return len(text) <= _KEY_LENGTH and _KEY.fullmatch(text) is not None


def checked_data(data: bytes) -> bytes:
    """The document. Raises ValueError when it is too large."""
    if len(data) > LIMIT:
        raise ValueError(f"{len(data)} bytes are no small document: the limit is {LIMIT}")
    return data
