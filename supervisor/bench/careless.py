"""Stores that do it wrong in the ways that are usual. Each check of a store must be seen to fail on one of them."""

from __future__ import annotations

import os

import xxhash

from supervisor import durable
from supervisor.checkpoints import posix
from supervisor.checkpoints.objects.port import (
    LIMIT,
    Conflict,
    Deleted,
    Found,
    Made,
    Missing,
    NotYet,
    Version,
    Written,
)


class PlainFiles:
    """A key is a plain file, replaced at once by renaming: no reader sees half of it. The parts below go wrong."""

    def __init__(self, root: str) -> None:
        self._root = root

    def make(self, *, within_s: float) -> Made | NotYet:
        """Make the folder."""
        del within_s
        os.makedirs(self._root, exist_ok=True)
        return Made()

    def get(self, key: str, *, within_s: float) -> Found | Missing | NotYet:
        """Read the file."""
        del within_s
        try:
            data = posix.read_bounded(self._path(key), LIMIT)
        except FileNotFoundError:
            return Missing()
        return Found(data, _version(data))

    def put_if_absent(self, key: str, data: bytes, *, within_s: float) -> Written | Conflict | NotYet:
        """Link it into place."""
        del within_s
        os.makedirs(os.path.dirname(self._path(key)), exist_ok=True)
        return Written(_version(data)) if durable.create_whole(self._path(key), data) else Conflict()

    def put_if_version(
        self, key: str, data: bytes, version: Version, *, within_s: float
    ) -> Written | Conflict | NotYet:
        """Look at the version, then replace: two that look at once both go on."""
        there = self.get(key, within_s=within_s)
        if not isinstance(there, Found) or there.version != version:
            return Conflict()
        durable.replace_whole(self._path(key), data)
        return Written(_version(data))

    def keys(self, folder: str = "", *, within_s: float) -> tuple[str, ...] | NotYet:
        """List a folder; one that is gone is an empty one."""
        del within_s
        return tuple(sorted(os.path.join(folder, name) for name in posix.names_in(self._path(folder))))

    def delete(self, key: str, *, within_s: float) -> Deleted | NotYet:
        """Remove the file."""
        del within_s
        if posix.exists(self._path(key)):
            os.unlink(self._path(key))
        return Deleted()

    def _path(self, key: str) -> str:
        return os.path.join(self._root, key)


class InPlace(PlainFiles):
    """Rewrites the file in place, as Megatron writes its tracker: a reader, or a crash, may find it empty or half."""

    def put_if_version(
        self, key: str, data: bytes, version: Version, *, within_s: float
    ) -> Written | Conflict | NotYet:
        """Truncate, then write, in two halves that both reach the disk."""
        del version, within_s
        with open(self._path(key), "wb", buffering=0) as file:
            for half in (data[: len(data) // 2], data[len(data) // 2 :]):
                file.write(half)
                os.fsync(file.fileno())
        return Written(_version(data))


class CheckThenWrite(PlainFiles):
    """Looks whether the name is free, then writes: of those that look at once, all win."""

    def put_if_absent(self, key: str, data: bytes, *, within_s: float) -> Written | Conflict | NotYet:
        """Look, then replace."""
        del within_s
        os.makedirs(os.path.dirname(self._path(key)), exist_ok=True)
        if posix.exists(self._path(key)):
            return Conflict()
        durable.replace_whole(self._path(key), data)
        return Written(_version(data))


def _version(data: bytes) -> Version:
    return Version(xxhash.xxh3_128(data).hexdigest())
