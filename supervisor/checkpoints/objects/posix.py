"""Documents on a POSIX file system that all nodes share: every change is the exclusive creation of the next number.

A key is a folder; its files are `@0000001`, `@0000002`, ...: the highest counts, and a deletion is one of them, which
says so. Nothing is ever rewritten or renamed over, so no reader can see half of a change, and `link(2)` decides who is
first, on NFS too: a compare and swap without a lock that a dead node could hold.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

from supervisor.checkpoints.objects.files import Files
from supervisor.checkpoints.objects.frame import HEAD_LIMIT, Framed, Unsound, fresh_nonce, kind_of, pack, unpack
from supervisor.checkpoints.objects.lag import Lag
from supervisor.checkpoints.objects.patience import Patience, Until
from supervisor.checkpoints.objects.port import (
    LIMIT,
    MARKER,
    Broken,
    Conflict,
    Deleted,
    Found,
    Made,
    Missing,
    NotYet,
    Version,
    Written,
    checked,
    checked_data,
    is_key,
)
from supervisor.checkpoints.posix import why
from supervisor.errors import UserError

LAG_S: Final = 60.0
"""Seconds that a name may look absent or a file short: NFS keeps directory attributes for up to 60 s (acdirmax)."""
KEPT: Final = 16
"""Files of a key that are always kept: others may have read their names a moment ago, and be about to open them."""
_ROUNDS: Final = 32
_NUMBERED = re.compile(r"@([0-9]{7,12})")
_ABSENT = (FileNotFoundError, NotADirectoryError)
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
T = TypeVar("T")


class PosixObjects:
    """One store under `root`, as `port.Objects`. `lag_s` should be 0 where the file system is local."""

    def __init__(
        self,
        root: str,
        *,
        lag_s: float = LAG_S,
        clock: Callable[[], float] = time.monotonic,
        files: Files | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._root = os.path.abspath(root)
        self._files = files or Files()
        self._lag = Lag(lag_s, clock)
        self._seen: dict[str, int] = {}
        self._patience = patience or Patience()

    def make(self, *, within_s: float) -> Made | NotYet:
        """See `port.Objects`. Raises UserError where there are no hard links."""
        return self._call(self._root, lambda _: self._make(), within_s)

    def get(self, key: str, *, within_s: float) -> Found | Missing | Broken | NotYet:
        """See `port.Objects`."""
        checked(key)
        return self._call(key, lambda _: self._get(key), within_s)

    def put_if_absent(self, key: str, data: bytes, *, within_s: float) -> Written | Conflict | NotYet:
        """See `port.Objects`."""
        checked(key), checked_data(data)
        return self._call(key, lambda until: self._put_if_absent(key, data, until), within_s)

    def put_if_version(
        self, key: str, data: bytes, version: Version, *, within_s: float
    ) -> Written | Conflict | NotYet:
        """See `port.Objects`."""
        checked(key), checked_data(data)
        return self._call(key, lambda until: self._put_if_version(key, data, version, until), within_s)

    def keys(self, folder: str = "", *, within_s: float) -> tuple[str, ...] | NotYet:
        """See `port.Objects`."""
        if folder:
            checked(folder)
        return self._call(folder or "the store", lambda _: self._keys(folder), within_s)

    def delete(self, key: str, *, within_s: float) -> Deleted | NotYet:
        """See `port.Objects`."""
        checked(key)
        return self._call(key, lambda until: self._delete(key, until), within_s)

    def _call(self, what: str, work: Callable[[Until], T], within_s: float) -> T | NotYet:
        def guarded(until: Until) -> T | NotYet:
            try:
                return work(until)
            except OSError as error:
                return NotYet(f"{what}: {why(error)}")

        return self._patience.call(what, guarded, within_s)

    # --- reading -------------------------------------------------------------------------------------------------

    def _get(self, key: str) -> Found | Missing | Broken | NotYet:
        newest = self._newest(key)
        return newest.answer if newest.number else self._absent(key, newest.answer)

    def _absent(self, key: str, answer: Found | Missing | Broken | NotYet) -> Found | Missing | Broken | NotYet:
        """Nothing of a key is to be seen: `answer`, once that has been so for longer than names may lag."""
        self._require()
        return answer if self._lag.passed(f"absent {key}") else NotYet(f"{key}: is not there, or not visible yet")

    def _newest(self, key: str) -> _Newest:
        """The highest file and what it says; number 0 and Missing when there is none. Raises OSError."""
        for _ in range(_ROUNDS):
            numbers = self._numbers(key)
            number = numbers[-1] if numbers else 0
            if number < self._seen.get(key, 0) and not self._lag.passed(f"behind {key}"):
                return _Newest(number, NotYet(f"{key}: the folder shows less than it has shown before"))
            self._seen[key] = number
            self._lag.well(f"behind {key}")
            if not number:
                return _Newest(0, Missing())
            self._lag.well(f"absent {key}")
            try:
                raw = self._files.read(self._file(key, number), LIMIT + HEAD_LIMIT)
            except FileNotFoundError:
                continue  # removed since the names were read, so there are higher ones
            return _Newest(number, self._judged(key, number, unpack(raw)))
        return _Newest(0, NotYet(f"{key}: changes faster than it can be read"))

    def _judged(self, key: str, number: int, read: Framed | Unsound) -> Found | Missing | Broken | NotYet:
        what = f"{key} {number}"
        if isinstance(read, Unsound):
            said = f"{key}: {read.why}"
            return Broken(said) if self._lag.passed(what) else NotYet(said)
        self._lag.well(what)
        return Missing() if read.data is None else Found(read.data, _version(number, read))

    def _numbers(self, key: str) -> list[int]:
        """The numbers in a key's folder, rising; none where there is no such folder. Raises OSError."""
        try:
            names = self._files.names(self._folder(key))
        except _ABSENT:
            return []
        return sorted(int(found[1]) for found in map(_NUMBERED.fullmatch, names) if found)

    def _keys(self, folder: str) -> tuple[str, ...] | NotYet:
        self._require()
        found: list[str] = []
        try:
            pending = self._below(folder)
        except _ABSENT:
            if not self._lag.passed(f"folder {folder}"):
                return NotYet(f"{folder}: is not there, or not visible yet")
            return ()
        self._lag.well(f"folder {folder}")
        while pending:
            key = pending.pop()
            pending += self._below(key)
            numbers = self._numbers(key)
            if numbers and self._is_document(key, numbers[-1]):
                found.append(key)
        self._require()
        return tuple(sorted(found))

    def _below(self, key: str) -> list[str]:
        names = self._files.folders(self._folder(key))
        return [path for path in (f"{key}/{name}" if key else name for name in names) if is_key(path)]

    def _is_document(self, key: str, number: int) -> bool:
        """Raises OSError while it can't be told. One that is broken for good is a document: `get` says so."""
        kind = kind_of(self._files.head(self._file(key, number), HEAD_LIMIT))
        if kind is None and not self._lag.passed(f"{key} {number}"):
            raise OSError(errno.EAGAIN, "is not whole yet", self._folder(key))
        return kind != "gone"

    def _require(self) -> None:
        """Raises OSError when the store is not there: an unmounted file system is no empty store."""
        try:
            self._files.read(self._marker, LIMIT)
        except _ABSENT:
            raise OSError(errno.ENODEV, "there is no store here now", self._root) from None

    # --- changing ------------------------------------------------------------------------------------------------

    def _make(self) -> Made | NotYet:
        self._files.make_root(self._root)
        try:
            self._files.create(self._marker, b"relight objects 1\n")
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UserError(
                    f"{self._root}: this file system has no hard links, without which two writers could both win"
                ) from None
            raise
        self._require()
        return Made()

    def _put_if_absent(self, key: str, data: bytes, until: Until) -> Written | Conflict | NotYet:
        self._require()
        newest = self._newest(key)
        if isinstance(newest.answer, NotYet):
            return newest.answer
        if not isinstance(newest.answer, Missing):
            return Conflict()
        return self._append(key, newest.number, data, until)

    def _put_if_version(self, key: str, data: bytes, version: Version, until: Until) -> Written | Conflict | NotYet:
        self._require()
        newest = self._newest(key)
        if isinstance(newest.answer, NotYet):
            return newest.answer
        if not isinstance(newest.answer, Found) or newest.answer.version != version:
            return Conflict()
        return self._append(key, newest.number, data, until)

    def _delete(self, key: str, until: Until) -> Deleted | NotYet:
        self._require()
        for _ in range(_ROUNDS):
            newest = self._newest(key)
            answer = newest.answer if newest.number else self._absent(key, newest.answer)
            if isinstance(answer, NotYet):
                return answer
            if isinstance(answer, Missing):
                return Deleted()
            done = self._append(key, newest.number, None, until)
            if not isinstance(done, Conflict):
                return done if isinstance(done, NotYet) else Deleted()
        return NotYet(f"{key}: is being rewritten all the time")

    def _append(self, key: str, number: int, data: bytes | None, until: Until) -> Written | Conflict | NotYet:
        """Create the file after `number`; whether it was this call that did is judged by reading it again."""
        nonce, path = fresh_nonce(), self._file(key, number + 1)
        self._make_folders(key)
        until.check()
        failed: OSError | None = None
        try:
            self._files.create(path, pack(data, nonce))
        except OSError as error:
            failed = error  # over NFS the link may be there although the reply was lost
        try:
            read = unpack(self._files.read(path, LIMIT + HEAD_LIMIT))
        except FileNotFoundError:
            return NotYet(f"{key}: {why(failed) if failed else 'what was put is not visible yet'}")
        if isinstance(read, Unsound):
            return NotYet(f"{key}: {read.why}")
        if read.nonce != nonce:
            return Conflict()
        numbers = self._numbers(key)
        if numbers and numbers[-1] > number + 1 and number not in numbers:
            # The names were so old that our number lay among removed ones; or ours was replaced, several times, already.
            with contextlib.suppress(OSError):
                self._files.remove(path)
            return NotYet(f"{key}: others have written since")
        self._seen[key] = max(number + 1, self._seen.get(key, 0))
        self._prune(key, numbers)
        return Written(_version(number + 1, read))

    def _make_folders(self, key: str) -> None:
        path = self._root
        for name in key.split("/"):
            path = os.path.join(path, name)
            self._files.make_folder(path)

    def _prune(self, key: str, numbers: list[int]) -> None:
        """Remove what was replaced longer ago than names may lag: until then a number must not become free again."""
        with contextlib.suppress(OSError):  # the next writer does it
            newest = self._files.changed_ns(self._file(key, numbers[-1])) if numbers else 0
            for number, successor in pairwise(numbers[: 1 - KEPT]):
                if newest - self._files.changed_ns(self._file(key, successor)) < self._lag.bound_s * 1e9:
                    return
                self._files.remove(self._file(key, number))

    # --- paths ---------------------------------------------------------------------------------------------------

    @property
    def _marker(self) -> str:
        return os.path.join(self._root, MARKER)

    def _folder(self, key: str) -> str:
        return os.path.join(self._root, key) if key else self._root

    def _file(self, key: str, number: int) -> str:
        return os.path.join(self._root, key, f"@{number:07d}")


@dataclass(frozen=True, slots=True)
class _Newest:
    number: int
    answer: Found | Missing | Broken | NotYet


def _version(number: int, read: Framed) -> Version:
    return Version(f"{number}-{read.nonce}")
