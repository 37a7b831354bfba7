"""Documents in an object store (S3, GCS, Azure, memory), through obstore: conditional writes decide who is first.

Two things of the library are made good here, both by reading again: S3's 409 ("a conflicting write is under way, try
again") reaches us as "already exists", and a request whose reply was lost is sent again and then refused by what it
has itself written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from supervisor.checkpoints.objects.frame import HEAD_LIMIT, Unsound, fresh_nonce, pack, unpack
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
from supervisor.errors import UserError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ObjectStore

_NO_TAG: Final = '"00000000000000000000000000000000"'
_ROUNDS: Final = 32
_REFUSED = (AlreadyExistsError, PreconditionError, FileNotFoundError)
T = TypeVar("T")


class RemoteObjects:
    """One store in a bucket, as `port.Objects`. `lag_s`: 0 for S3, GCS and Azure, which promise that reads see writes.

    `store` should not retry by itself (see `opening`): then what is refused has surely not landed before. `reader`: the
    same place for reading, which may retry; a server that answers 500 now and then is no reason for NotYet.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        reader: ObjectStore | None = None,
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._reader = reader or store
        self._lag = Lag(lag_s, clock)
        self._patience = patience or Patience()

    def make(self, *, within_s: float) -> Made | NotYet:
        """See `port.Objects`. Raises UserError for a store that does not honour conditions; the bucket must exist."""
        return self._call("the store", lambda _: self._make(), within_s)

    def get(self, key: str, *, within_s: float) -> Found | Missing | Broken | NotYet:
        """See `port.Objects`."""
        checked(key)
        return self._call(key, lambda _: self._get(key)[0], within_s)

    def put_if_absent(self, key: str, data: bytes, *, within_s: float) -> Written | Conflict | NotYet:
        """See `port.Objects`."""
        checked(key), checked_data(data)
        return self._call(key, lambda until: self._put(key, data, None, until), within_s)

    def put_if_version(
        self, key: str, data: bytes, version: Version, *, within_s: float
    ) -> Written | Conflict | NotYet:
        """See `port.Objects`."""
        checked(key), checked_data(data)
        return self._call(key, lambda until: self._put(key, data, version, until), within_s)

    def keys(self, folder: str = "", *, within_s: float) -> tuple[str, ...] | NotYet:
        """See `port.Objects`."""
        if folder:
            checked(folder)
        return self._call(folder or "the store", lambda _: self._keys(folder), within_s)

    def delete(self, key: str, *, within_s: float) -> Deleted | NotYet:
        """See `port.Objects`."""
        checked(key)
        return self._call(key, lambda _: self._delete(key), within_s)

    def _call(self, what: str, work: Callable[[Until], T], within_s: float) -> T | NotYet:
        def guarded(until: Until) -> T | NotYet:
            try:
                return work(until)
            except (BaseError, OSError, ValueError) as error:
                return NotYet(f"{what}: {_said(error)}")

        return self._patience.call(what, guarded, within_s)

    def _make(self) -> Made:
        try:
            obstore.put(self._store, MARKER, b"relight objects 1\n", mode="create", use_multipart=False)
        except AlreadyExistsError:
            pass
        except (NotSupportedError, NotImplementedError):
            raise _unfit() from None
        # A server that does not know the conditions ignores them, and every writer would win.
        modes: tuple[PutMode, ...] = ("create", {"e_tag": _NO_TAG, "version": "0"})
        for mode in modes:
            try:
                obstore.put(self._store, MARKER, b"relight objects 1\n", mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                continue
            except (NotSupportedError, NotImplementedError):
                raise _unfit() from None
            raise _unfit()
        return Made()

    def _get(self, key: str) -> tuple[Found | Missing | Broken | NotYet, str]:
        """The answer, and the nonce of the writing that was read."""
        try:
            result = obstore.get(self._reader, key)
            size = result.meta["size"]
            raw = bytes(result.bytes()) if size <= LIMIT + HEAD_LIMIT else b""
        except FileNotFoundError:
            return self._absent(key), ""
        read = unpack(raw)
        if isinstance(read, Unsound) or read.data is None:
            said = f"{key}: {read.why if isinstance(read, Unsound) else 'is the mark of a deletion'}"
            return (Broken(said) if self._lag.passed(key) else NotYet(said)), ""
        self._lag.well(key)
        return Found(read.data, _version(result.meta)), read.nonce

    def _absent(self, key: str) -> Missing | NotYet:
        try:
            obstore.head(self._reader, MARKER)
        except FileNotFoundError:
            return NotYet("there is no store here now")
        if not self._lag.passed(f"absent {key}"):
            return NotYet(f"{key}: is not there, or not visible yet")
        return Missing()

    def _put(self, key: str, data: bytes, version: Version | None, until: Until) -> Written | Conflict | NotYet:
        nonce = fresh_nonce()
        raw = pack(data, nonce)
        mode: PutMode | None = "create" if version is None else _update(version)
        if mode is None:
            return Conflict()
        for _ in range(_ROUNDS):
            until.check()
            refused, said = True, ""
            try:
                return Written(_version(obstore.put(self._store, key, raw, mode=mode, use_multipart=False)))
            except _REFUSED:
                pass
            except (BaseError, OSError) as error:
                refused, said = False, _said(error)
            there, whose = self._get(key)
            if whose == nonce and isinstance(there, Found):
                return Written(there.version)
            if isinstance(there, NotYet) or not refused:
                return NotYet(f"{key}: {said or there}")
            if not _as_wanted(there, version):
                return Conflict()
        return NotYet(f"{key}: refused again and again, although nothing stands in the way")

    def _keys(self, folder: str) -> tuple[str, ...] | NotYet:
        listed = obstore.list(self._reader, prefix=folder or None)
        found = tuple(sorted(each["path"] for batch in listed for each in batch if is_key(each["path"])))
        if not found and isinstance(there := self._absent(f"folder {folder}"), NotYet):
            return there
        return found

    def _delete(self, key: str) -> Deleted | NotYet:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            there = self._absent(key)
            return there if isinstance(there, NotYet) else Deleted()
        return Deleted()


def _as_wanted(there: Found | Missing | Broken, version: Version | None) -> bool:
    """Is the key as the put required it, so that its refusal was only a moment's?"""
    if version is None:
        return isinstance(there, Missing)
    return isinstance(there, Found) and there.version == version


def _version(of: ObjectMeta | PutResult) -> Version:
    """Both names that a store may give a content, as one opaque text. Raises ValueError when it gives none."""
    e_tag, version = of["e_tag"], of["version"]
    if not e_tag and not version:
        raise ValueError("the store names no versions")
    return Version(json.dumps([e_tag, version]))


def _update(version: Version) -> UpdateVersion | None:
    """The condition on a write; None for a version that no such store has given."""
    try:
        e_tag, number = json.loads(version)
    except (ValueError, TypeError):
        return None
    wanted: UpdateVersion = {}
    if e_tag:
        wanted["e_tag"] = str(e_tag)
    if number:
        wanted["version"] = str(number)
    return wanted or None


def _said(error: Exception) -> str:
    """The library's words without its debugging part."""
    return str(error).split("\n", 1)[0][:200] or type(error).__name__


def _unfit() -> UserError:
    return UserError(
        "this object store ignores conditions on writes (If-None-Match, If-Match): two writers could both win"
    )
