"""The files of one store in a bucket, through obstore: see `bulk`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from supervisor.checkpoints.objects.bulk import FOLDER, Copied, Differs, asked, called, checked_file
from supervisor.checkpoints.objects.landing import BLOCK, Pace, blocks, land, no_pace, summed
from supervisor.checkpoints.objects.patience import Patience, Until
from supervisor.checkpoints.objects.port import MARKER, Deleted, Missing, NotYet

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_AT_ONCE: Final = 8 << 20
"""Bytes up to which an object is put in one request: parts of S3 have 5 MiB at least, and an empty file has none."""


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
                content = summed(blocks(source, until, pace), xxh3, source)
                if os.stat(source).st_size <= _AT_ONCE:
                    obstore.put(self._store, path, b"".join(content), use_multipart=False)
                else:
                    obstore.put(
                        self._store, path, content, use_multipart=True, chunk_size=self._chunk, max_concurrency=4
                    )
            stream = self._stream(path, until, pace)
            return Copied(sum(map(len, summed(stream, xxh3, f"{key} in the store", landed=True))))

        return called(self._patience, key, work, within_s)

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
            return Copied(land(self._stream(path, until, pace), target, xxh3, until, pace, aside))

        return called(self._patience, key, work, within_s)

    def sizes(self, folder: str, *, within_s: float) -> Mapping[str, int] | NotYet:
        """See `Bulk`."""
        return asked(self._patience, folder, lambda _: self._sizes(folder), within_s)

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

        def work(_: Until) -> Deleted:
            names = [name] if name is not None else sorted(self._sizes(folder))
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, [f"{FOLDER}/{checked_file(f'{folder}/{one}')}" for one in names])
            return Deleted()

        return asked(self._patience, folder, work, within_s)

    def tidy(self, folder: str, *, within_s: float) -> Deleted | NotYet:  # noqa: ARG002 - the bucket's own rules do it
        """See `Bulk`: parts of an upload that was cut off are no objects, and the bucket drops them."""
        return Deleted()

    def _stream(self, path: str, until: Until, pace: Pace) -> Iterator[bytes]:
        import obstore  # noqa: PLC0415

        for block in obstore.get(self._reader, path).stream(min_chunk_size=BLOCK):
            until.check()
            pace(len(block))
            yield bytes(block)
