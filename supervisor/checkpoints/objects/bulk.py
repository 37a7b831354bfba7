"""The bulk of a save, into an archive and back: streamed, and believed only after it was read again where it has landed.

A copy carries the sum that its manifest names (xxh3_128 of the file). It is taken three times: from what is
read, so that rot is not archived; from what has landed, so that a copy is not believed for having been written; and
again on the way back. Keys here are never given to two contents: a caller puts the save's id into them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import xxhash

from supervisor import durable
from supervisor.checkpoints.objects.patience import LateError, Patience, Until
from supervisor.checkpoints.objects.port import MARKER, Deleted, Missing, NotYet
from supervisor.checkpoints.posix import names_in, open_regular, why

if TYPE_CHECKING:
    from obstore.store import ObjectStore

FOLDER: Final = ".bulk"
"""Beside the documents; no key begins like that."""
_AT_ONCE: Final = 8 << 20
"""Bytes up to which an object is put in one request: parts of S3 have 5 MiB at least, and an empty file has none."""
BLOCK: Final = 4 << 20
"""Bytes a read."""
_KEY = re.compile(r"(?!.*\.tmp\Z)[A-Za-z0-9._-]{1,255}(?:/[A-Za-z0-9._-]{1,255}){0,15}")
T = TypeVar("T")
Pace = Callable[[int], None]
"""Called with the bytes of each block that was read, by the thread that reads: it may wait, or raise to give up."""


def no_pace(_count: int) -> None:
    """As fast as it goes."""


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


class _DiffersError(Exception):
    def __init__(self, text: str, *, landed: bool) -> None:
        super().__init__(text)
        self.landed = landed


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
            return _land(_blocks(source, until, pace), target, xxh3, until, pace)

        return _call(self._patience, key, work, within_s)

    def copy_out(
        self, key: str, target: str, xxh3: str, *, within_s: float, pace: Pace = no_pace, aside: str | None = None
    ) -> Copied | Differs | Missing | NotYet:
        """See `Bulk`."""
        source = self._path(key)

        def work(until: Until) -> Copied | Missing:
            os.stat(os.path.join(self._root, MARKER))
            if not os.path.lexists(source):
                return Missing()
            return _land(_blocks(source, until, pace), target, xxh3, until, pace, aside)

        return _call(self._patience, key, work, within_s)

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

        return _asked(self._patience, folder, work, within_s)

    def remove(self, folder: str, name: str | None = None, *, within_s: float) -> Deleted | NotYet:
        """See `Bulk`."""
        path = self._path(folder if name is None else f"{folder}/{name}")

        def work(_: Until) -> Deleted:
            os.stat(os.path.join(self._root, MARKER))
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if name is None else os.unlink(path)
            return Deleted()

        return _asked(self._patience, folder, work, within_s)

    def tidy(self, folder: str, *, within_s: float) -> Deleted | NotYet:
        """See `Bulk`."""
        path = self._path(folder)

        def work(_: Until) -> Deleted:
            for name in names_in(path):
                if name.endswith(".tmp"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(path, name))
            return Deleted()

        return _asked(self._patience, folder, work, within_s)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, FOLDER, checked_file(key))


class RemoteBulk:
    """Objects of a bucket, in parts of `chunk` bytes. `store` and `reader` as for `RemoteObjects`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        reader: ObjectStore | None = None,
        patience: Patience | None = None,
        chunk: int = 64 << 20,
    ) -> None:
        self._store = store
        self._reader = reader or store
        self._patience = patience or Patience()
        self._chunk = chunk

    def copy_in(
        self, source: str, key: str, xxh3: str, *, within_s: float, pace: Pace = no_pace
    ) -> Copied | Differs | NotYet:
        """See `Bulk`. A copy that fails half-way is given up by the library, so that no part of it is paid for."""
        import obstore  # noqa: PLC0415 - an optional dependency

        path = f"{FOLDER}/{checked_file(key)}"

        def work(until: Until) -> Copied:
            try:
                obstore.head(self._reader, path)
            except FileNotFoundError:
                blocks = _summed(_blocks(source, until, pace), xxh3, source)
                if os.stat(source).st_size <= _AT_ONCE:
                    obstore.put(self._store, path, b"".join(blocks), use_multipart=False)
                else:
                    obstore.put(
                        self._store, path, blocks, use_multipart=True, chunk_size=self._chunk, max_concurrency=4
                    )
            stream = self._stream(path, until, pace)
            return Copied(sum(map(len, _summed(stream, xxh3, f"{key} in the store", landed=True))))

        return _call(self._patience, key, work, within_s)

    def copy_out(
        self, key: str, target: str, xxh3: str, *, within_s: float, pace: Pace = no_pace, aside: str | None = None
    ) -> Copied | Differs | Missing | NotYet:
        """See `Bulk`."""
        import obstore  # noqa: PLC0415

        path = f"{FOLDER}/{checked_file(key)}"

        def work(until: Until) -> Copied | Missing:
            try:
                obstore.head(self._reader, path)
            except FileNotFoundError:
                obstore.head(self._reader, MARKER)  # else the whole store is not there, and says so as a missing object
                return Missing()
            return _land(self._stream(path, until, pace), target, xxh3, until, pace, aside)

        return _call(self._patience, key, work, within_s)

    def sizes(self, folder: str, *, within_s: float) -> Mapping[str, int] | NotYet:
        """See `Bulk`."""
        return _asked(self._patience, folder, lambda _: self._sizes(folder), within_s)

    def _sizes(self, folder: str) -> dict[str, int]:
        import obstore  # noqa: PLC0415

        prefix = f"{FOLDER}/{checked_file(folder)}"
        listed = obstore.list(self._reader, prefix=prefix)
        found = {one["path"].removeprefix(f"{prefix}/"): one["size"] for batch in listed for one in batch}
        if not found:
            obstore.head(self._reader, MARKER)
        return found

    def remove(self, folder: str, name: str | None = None, *, within_s: float) -> Deleted | NotYet:
        """See `Bulk`."""
        import obstore  # noqa: PLC0415

        def work(until: Until) -> Deleted:
            for one in [name] if name is not None else self._sizes(folder):
                until.check()
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(self._store, f"{FOLDER}/{checked_file(f'{folder}/{one}')}")
            return Deleted()

        return _asked(self._patience, folder, work, within_s)

    def tidy(self, folder: str, *, within_s: float) -> Deleted | NotYet:  # noqa: ARG002 - the bucket's own rules do it
        """See `Bulk`: parts of an upload that was cut off are no objects, and the bucket drops them."""
        return Deleted()

    def _stream(self, path: str, until: Until, pace: Pace) -> Iterator[bytes]:
        import obstore  # noqa: PLC0415

        for block in obstore.get(self._reader, path).stream(min_chunk_size=BLOCK):
            until.check()
            pace(len(block))
            yield bytes(block)


def _call(patience: Patience, what: str, work: Callable[[Until], T], within_s: float) -> T | Differs | NotYet:
    def compared(until: Until) -> T | Differs:
        try:
            return work(until)
        except _DiffersError as error:
            return Differs(str(error), error.landed)

    return _asked(patience, what, compared, within_s)


def _asked(patience: Patience, what: str, work: Callable[[Until], T], within_s: float) -> T | NotYet:
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


def _blocks(path: str, until: Until, pace: Pace) -> Iterator[bytes]:
    """The content of a regular file. Raises OSError, LateError."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            until.check()
            pace(len(block))
            yield block


def _summed(blocks: Iterable[bytes], xxh3: str, what: str, *, landed: bool = False) -> Iterator[bytes]:
    """Pass them on. Raises _DiffersError at the end, before whoever takes them believes that it has them all."""
    digest = xxhash.xxh3_128()
    for block in blocks:
        digest.update(block)
        yield block
    if digest.hexdigest() != xxh3:
        why_not = f"{what} is not what its manifest says (xxh3 {digest.hexdigest()}, not {xxh3})"
        raise _DiffersError(why_not, landed=landed)


def _land(
    blocks: Iterable[bytes], target: str, xxh3: str, until: Until, pace: Pace, folder: str | None = None
) -> Copied:
    """Write them aside, whole and durable; link them to their name; read them again. Raises _DiffersError, OSError."""
    if not os.path.lexists(target):
        beside = target if folder is None else os.path.join(folder, os.path.basename(target))
        aside = f"{beside}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            with open(
                os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0
            ) as file:
                for block in _summed(blocks, xxh3, f"what was to become {os.path.basename(target)}"):
                    _write(file.fileno(), block)
                os.fsync(file.fileno())
                # What is read below comes from the store, not from our own memory, as far as the system lets us choose.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            until.check()
            with contextlib.suppress(FileExistsError):
                os.link(aside, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        durable.sync_folder(os.path.dirname(target))
    return Copied(sum(map(len, _summed(_blocks(target, until, pace), xxh3, target, landed=True))))


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
