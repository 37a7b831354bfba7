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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import xxhash

from supervisor import durable
from supervisor.checkpoints.objects.patience import LateError, Patience, Until
from supervisor.checkpoints.objects.port import MARKER, Missing, NotYet
from supervisor.checkpoints.posix import open_regular, why

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
    """Read in full, and not what the sum says. Which of the two stands in `why`; nothing was replaced."""

    why: str


class Bulk(Protocol):
    """The files of one store. `xxh3`: 32 hex digits. Raises nothing for what the store does, ValueError for a wrong key."""

    def copy_in(self, source: str, key: str, xxh3: str, *, within_s: float) -> Copied | Differs | NotYet:
        """A file into the store. What is there already is verified, not written again."""
        ...

    def copy_out(self, key: str, target: str, xxh3: str, *, within_s: float) -> Copied | Differs | Missing | NotYet:
        """A file out of the store, to a path whose folder exists. What is there already is verified, not replaced."""
        ...


class _DiffersError(Exception):
    pass


class PosixBulk:
    """Files under `root`, where `PosixObjects` has its documents; it makes the store."""

    def __init__(self, root: str, patience: Patience | None = None) -> None:
        self._root = os.path.abspath(root)
        self._patience = patience or Patience()

    def copy_in(self, source: str, key: str, xxh3: str, *, within_s: float) -> Copied | Differs | NotYet:
        """See `Bulk`."""
        target = self._path(key)

        def work(until: Until) -> Copied:
            os.stat(os.path.join(self._root, MARKER))  # a mount that is gone is not filled
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            return _land(_blocks(source, until), target, xxh3, until)

        return _call(self._patience, key, work, within_s)

    def copy_out(self, key: str, target: str, xxh3: str, *, within_s: float) -> Copied | Differs | Missing | NotYet:
        """See `Bulk`."""
        source = self._path(key)

        def work(until: Until) -> Copied | Missing:
            os.stat(os.path.join(self._root, MARKER))
            if not os.path.lexists(source):
                return Missing()
            return _land(_blocks(source, until), target, xxh3, until)

        return _call(self._patience, key, work, within_s)

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

    def copy_in(self, source: str, key: str, xxh3: str, *, within_s: float) -> Copied | Differs | NotYet:
        """See `Bulk`. A copy that fails half-way is given up by the library, so that no part of it is paid for."""
        import obstore  # noqa: PLC0415 - an optional dependency

        path = f"{FOLDER}/{checked_file(key)}"

        def work(until: Until) -> Copied:
            try:
                obstore.head(self._reader, path)
            except FileNotFoundError:
                blocks = _summed(_blocks(source, until), xxh3, source)
                if os.stat(source).st_size <= _AT_ONCE:
                    obstore.put(self._store, path, b"".join(blocks), use_multipart=False)
                else:
                    obstore.put(
                        self._store, path, blocks, use_multipart=True, chunk_size=self._chunk, max_concurrency=4
                    )
            return Copied(sum(map(len, _summed(self._stream(path, until), xxh3, f"{key} in the store"))))

        return _call(self._patience, key, work, within_s)

    def copy_out(self, key: str, target: str, xxh3: str, *, within_s: float) -> Copied | Differs | Missing | NotYet:
        """See `Bulk`."""
        import obstore  # noqa: PLC0415

        path = f"{FOLDER}/{checked_file(key)}"

        def work(until: Until) -> Copied | Missing:
            try:
                obstore.head(self._reader, path)
            except FileNotFoundError:
                obstore.head(self._reader, MARKER)  # else the whole store is not there, and says so as a missing object
                return Missing()
            return _land(self._stream(path, until), target, xxh3, until)

        return _call(self._patience, key, work, within_s)

    def _stream(self, path: str, until: Until) -> Iterator[bytes]:
        import obstore  # noqa: PLC0415

        for block in obstore.get(self._reader, path).stream(min_chunk_size=BLOCK):
            until.check()
            yield bytes(block)


def _call(patience: Patience, what: str, work: Callable[[Until], T], within_s: float) -> T | Differs | NotYet:
    def guarded(until: Until) -> T | Differs | NotYet:
        try:
            return work(until)
        except _DiffersError as error:
            return Differs(str(error))
        except OSError as error:
            return NotYet(f"{what}: {why(error)}")
        except LateError:
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "obstore":
                raise
            return NotYet(f"{what}: {str(error).splitlines()[0][:200]}")

    return patience.call(what, guarded, within_s)


def _blocks(path: str, until: Until) -> Iterator[bytes]:
    """The content of a regular file. Raises OSError, LateError."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            until.check()
            yield block


def _summed(blocks: Iterable[bytes], xxh3: str, what: str) -> Iterator[bytes]:
    """Pass them on. Raises _DiffersError at the end, before whoever takes them believes that it has them all."""
    digest = xxhash.xxh3_128()
    for block in blocks:
        digest.update(block)
        yield block
    if digest.hexdigest() != xxh3:
        raise _DiffersError(f"{what} is not what its manifest says (xxh3 {digest.hexdigest()}, not {xxh3})")


def _land(blocks: Iterable[bytes], target: str, xxh3: str, until: Until) -> Copied:
    """Write them aside, whole and durable; link them to their name; read them again. Raises _DiffersError, OSError."""
    if not os.path.lexists(target):
        aside = f"{target}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
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
    return Copied(sum(map(len, _summed(_blocks(target, until), xxh3, target))))


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
