"""The bulk of a save, into an archive and back: streamed, and believed only after it was read again where it has landed.

A copy carries the sum that its manifest names (xxh3_128 of the file). It is taken three times: from what is
read, so that rot is not archived; from what has landed, so that a copy is not believed for having been written; and
again on the way back. Keys here are never given to two contents: a caller puts the save's id into them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from supervisor.checkpoints.objects.landing import DiffersError, Pace, blocks, land, no_pace
from supervisor.checkpoints.objects.patience import LateError, Patience, Until
from supervisor.checkpoints.objects.port import MARKER, Deleted, Missing, NotYet
from supervisor.checkpoints.posix import names_in, why

FOLDER: Final = ".bulk"
"""Beside the documents; no key begins like that."""
_KEY = re.compile(r"(?!.*\.tmp\Z)[A-Za-z0-9._-]{1,255}(?:/[A-Za-z0-9._-]{1,255}){0,15}")
T = TypeVar("T")


def checked_file(key: str) -> str:
    """The key of a file, such as `a0003-i0000040/.metadata`. Raises ValueError for a text that is none."""
    if len(key) > 500 or not _KEY.fullmatch(key) or not {".", ".."}.isdisjoint(key.split("/")):
        raise ValueError(f"{key[:80]!r} is no key of a file, such as a0003-i0000040/.metadata")
    return key


@dataclass(frozen=True, slots=True)
class Copied:
    """It is there, durable, and was read again: `size` bytes with the right sum."""

    size: int


@dataclass(frozen=True, slots=True)
class Differs:
    """Read in full, and not what the sum says. Nothing was replaced.

    `landed`: it is what lies at the goal that is wrong; else it is what was to be copied.
    """

    why: str
    landed: bool = False


class Bulk(Protocol):
    """The files of one store. `xxh3`: 32 hex digits. Raises nothing for what the store does, ValueError for a wrong key."""

    def copy_in(
        self, source: str, key: str, xxh3: str, *, within_s: float, pace: Pace = no_pace
    ) -> Copied | Differs | NotYet:
        """A file into the store. What is there already is verified, not written again."""
        ...

    def copy_out(
        self, key: str, target: str, xxh3: str, *, within_s: float, pace: Pace = no_pace, aside: str | None = None
    ) -> Copied | Differs | Missing | NotYet:
        """A file out of the store, to a path whose folder exists. What is there already is verified, not replaced.

        `aside`: the folder for what is only half there (None: the goal's own); of the same file system.
        """
        ...

    def sizes(self, folder: str, *, within_s: float) -> Mapping[str, int] | NotYet:
        """The names of the files in a folder, with their bytes; empty where the store is there and has none."""
        ...

    def remove(self, folder: str, name: str | None = None, *, within_s: float) -> Deleted | NotYet:
        """Remove one file, or all of a folder. What was not there is Deleted too."""
        ...

    def tidy(self, folder: str, *, within_s: float) -> Deleted | NotYet:
        """Remove what copies that were cut off have left in a folder; one that still goes on is cut off by it."""
        ...


class PosixBulk:
    """Files under `root`, where `PosixObjects` has its documents; it makes the store."""

    def __init__(self, root: str, patience: Patience | None = None) -> None:
        self._root = os.path.abspath(root)
        self._patience = patience or Patience()

    def copy_in(
        self, source: str, key: str, xxh3: str, *, within_s: float, pace: Pace = no_pace
    ) -> Copied | Differs | NotYet:
        """See `Bulk`."""
        target = self._path(key)

        def work(until: Until) -> Copied:
            os.stat(os.path.join(self._root, MARKER))  # a mount that is gone is not filled
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            return Copied(land(blocks(source, until, pace), target, xxh3, until, pace))

        return called(self._patience, key, work, within_s)

    def copy_out(
        self, key: str, target: str, xxh3: str, *, within_s: float, pace: Pace = no_pace, aside: str | None = None
    ) -> Copied | Differs | Missing | NotYet:
        """See `Bulk`."""
        source = self._path(key)

        def work(until: Until) -> Copied | Missing:
            os.stat(os.path.join(self._root, MARKER))
            if not os.path.lexists(source):
                return Missing()
            return Copied(land(blocks(source, until, pace), target, xxh3, until, pace, aside))

        return called(self._patience, key, work, within_s)

    def sizes(self, folder: str, *, within_s: float) -> Mapping[str, int] | NotYet:
        """See `Bulk`."""
        path = self._path(folder)

        def work(until: Until) -> dict[str, int]:
            os.stat(os.path.join(self._root, MARKER))
            found = {}
            for name in names_in(path):
                until.check()
                if not name.endswith(".tmp"):
                    with contextlib.suppress(FileNotFoundError):
                        found[name] = os.lstat(os.path.join(path, name)).st_size
            os.stat(os.path.join(self._root, MARKER))
            return found

        return asked(self._patience, folder, work, within_s)

    def remove(self, folder: str, name: str | None = None, *, within_s: float) -> Deleted | NotYet:
        """See `Bulk`."""
        path = self._path(folder if name is None else f"{folder}/{name}")

        def work(_: Until) -> Deleted:
            os.stat(os.path.join(self._root, MARKER))
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if name is None else os.unlink(path)
            return Deleted()

        return asked(self._patience, folder, work, within_s)

    def tidy(self, folder: str, *, within_s: float) -> Deleted | NotYet:
        """See `Bulk`."""
        path = self._path(folder)

        def work(_: Until) -> Deleted:
            for name in names_in(path):
                if name.endswith(".tmp"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(path, name))
            return Deleted()

        return asked(self._patience, folder, work, within_s)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, FOLDER, checked_file(key))


def called(patience: Patience, what: str, work: Callable[[Until], T], within_s: float) -> T | Differs | NotYet:
    """Do it within its time; what differs, and what can't be told now, is an answer."""

    def compared(until: Until) -> T | Differs:
        try:
            return work(until)
        except DiffersError as error:
            return Differs(str(error), error.landed)

    return asked(patience, what, compared, within_s)


def asked(patience: Patience, what: str, work: Callable[[Until], T], within_s: float) -> T | NotYet:
    """Do it within its time; what can't be told now is an answer."""

    def guarded(until: Until) -> T | NotYet:
        try:
            return work(until)
        except OSError as error:
            return NotYet(f"{what}: {why(error)}")
        except LateError:
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "obstore":
                raise
            return NotYet(f"{what}: {str(error).splitlines()[0][:200]}")

    return patience.call(what, guarded, within_s)
