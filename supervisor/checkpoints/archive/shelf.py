"""One run's part of an archive: its documents and files by save. What can't be read now raises OSError, nothing else does.

An absent document is never asked for by its key: until a cache has had its time, that can't be told. The folders are listed.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import xxhash
from pydantic import BaseModel, ValidationError

from supervisor.checkpoints.archive.documents import (
    COPIED,
    DAMAGED,
    DELETED,
    FOLDERS,
    INDEX,
    MADE,
    MANIFESTS,
    Copied,
    Document,
    Index,
    Made,
)
from supervisor.checkpoints.looking import parse_or_none
from supervisor.checkpoints.manifest import Manifest, UnsoundError, parse_manifest
from supervisor.checkpoints.objects.bulk import Bulk, checked_file
from supervisor.checkpoints.objects.port import Broken, Conflict, Found, Missing, NotYet, Objects, Version
from supervisor.checkpoints.tree import SaveId

WITHIN_S: Final = 60.0
"""Seconds for one document or listing."""
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """The saves that have a document in each folder."""

    manifests: frozenset[SaveId]
    copied: frozenset[SaveId]
    deleted: frozenset[SaveId]
    damaged: frozenset[SaveId]

    @property
    def known(self) -> frozenset[SaveId]:
        """All that are there and not deleted."""
        return (self.manifests | self.copied) - self.deleted


@dataclass(frozen=True, slots=True)
class Kept:
    """A copy whose documents agree. `raw`: the manifest's bytes, as the store had them."""

    copied: Copied
    manifest: Manifest
    raw: bytes


class Shelf:
    """The part of run `run` in the archive at `place`. Every call may take `WITHIN_S`."""

    def __init__(self, place: str, run: str, objects: Objects, bulk: Bulk) -> None:
        self.place = place
        self.run = run
        self.bulk = bulk
        self.objects = objects

    def make(self, now: float) -> None:
        """Make the archive and this run's folders, or find them. Raises OSError, UserError."""
        sure(self.objects.make(within_s=WITHIN_S))
        said = Made(run=self.run, at=now).to_bytes()
        for folder in FOLDERS:
            sure(self.objects.put_if_absent(f"{self.run}/{folder}/{MADE}", said, within_s=WITHIN_S))
        index = Index(at=now, files={}).to_bytes()
        sure(self.objects.put_if_absent(f"{self.run}/record/{INDEX}", index, within_s=WITHIN_S))

    def standing(self) -> Standing:
        """What is there, by name. Raises OSError."""
        return Standing(*(self._listed(folder) for folder in (MANIFESTS, COPIED, DELETED, DAMAGED)))

    def _listed(self, folder: str) -> frozenset[SaveId]:
        prefix = f"{self.run}/{folder}"
        keys = sure(self.objects.keys(prefix, within_s=WITHIN_S))
        names = [key.removeprefix(f"{prefix}/") for key in keys]
        if MADE not in names:
            raise OSError(errno.ENOENT, f"there is no archive of {self.run} here, or it can't be seen", self.place)
        return frozenset(filter(None, map(parse_or_none, names)))

    def kept(self, save: SaveId) -> Kept:
        """The documents of a copy that is listed as copied. Raises UnsoundError when they contradict, OSError."""
        copied = self.read(COPIED, save, Copied)
        raw = self.manifest_bytes(save)
        if copied.id != str(save):
            raise UnsoundError(f"copied/{save} is of another save ({copied.id[:40]!r})")
        if hashlib.sha256(raw).hexdigest() != copied.manifest_sha256:
            raise UnsoundError(f"manifests/{save} is not the manifest that copied/{save} vouches for")
        manifest = parse_manifest(save, raw)
        if manifest.bytes != copied.bytes:
            raise UnsoundError(f"copied/{save} speaks of {copied.bytes} bytes, the manifest of {manifest.bytes}")
        return Kept(copied, manifest, raw)

    def manifest_bytes(self, save: SaveId) -> bytes:
        """The manifest as it was archived. Raises UnsoundError when there is none, OSError."""
        return self._get(MANIFESTS, save)

    def read(self, folder: str, save: SaveId, model: type[M]) -> M:
        """One document that is listed. Raises UnsoundError when it is not what was put, OSError."""
        try:
            return model.model_validate_json(self._get(folder, save))
        except ValidationError:
            raise UnsoundError(f"{folder}/{save} is not a record of an archive") from None

    def _get(self, folder: str, save: SaveId) -> bytes:
        answer = self.objects.get(self._key(folder, save), within_s=WITHIN_S)
        match answer:
            case Found():
                return answer.data
            case Missing():
                raise UnsoundError(f"{folder}/{save} is missing")
            case Broken():
                raise UnsoundError(answer.why)
            case NotYet():
                raise away(answer)

    def put(self, folder: str, save: SaveId, document: Document | bytes) -> bool:
        """Put it where there is none; True when this call did. Raises OSError."""
        data = document if isinstance(document, bytes) else document.to_bytes()
        answer = self.objects.put_if_absent(self._key(folder, save), data, within_s=WITHIN_S)
        return not isinstance(sure(answer), Conflict)

    def replace(self, folder: str, save: SaveId, document: Document) -> None:
        """Put it whatever is there. Raises OSError."""
        while not self.put(folder, save, document):
            answer = sure(self.objects.get(self._key(folder, save), within_s=WITHIN_S))
            version = answer.version if isinstance(answer, Found) else Version("")
            key, data = self._key(folder, save), document.to_bytes()
            if isinstance(answer, Broken):
                self.take_away(folder, save)
            elif not isinstance(sure(self.objects.put_if_version(key, data, version, within_s=WITHIN_S)), Conflict):
                return

    def take_away(self, folder: str, save: SaveId) -> None:
        """Remove one document. Raises OSError."""
        sure(self.objects.delete(self._key(folder, save), within_s=WITHIN_S))

    def sizes(self, save: SaveId) -> Mapping[str, int]:
        """The files of a copy, by their names in the archive. Raises OSError."""
        return sure(self.bulk.sizes(self.files(save), within_s=WITHIN_S))

    def files(self, save: SaveId) -> str:
        """The folder of its files."""
        return f"{self.run}/saves/{save}"

    def file(self, save: SaveId, name: str) -> str:
        """The key of one of its files."""
        return f"{self.files(save)}/{filed(name)}"

    def _key(self, folder: str, save: SaveId) -> str:
        return f"{self.run}/{folder}/{save}"


def filed(name: str) -> str:
    """The name in the archive of a save's file: its own, or, where that can't be one there, a sum of it."""
    try:
        if len(name) <= 200 and not name.startswith("name-") and "/" not in name:
            return checked_file(name)
    except ValueError:
        pass
    return f"name-{xxhash.xxh3_128_hexdigest(name.encode())}"


def sure(answer: T | NotYet) -> T:
    """The answer. Raises OSError where there is none now."""
    if isinstance(answer, NotYet):
        raise away(answer)
    return answer


def away(answer: NotYet) -> OSError:
    """As an error."""
    return OSError(errno.EAGAIN, answer.why)
