"""An archive beside a store, at a path, and what may go wrong with it: for the tests of both."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from test_store_good import WORLD, Now, new_store, write_save

from supervisor.checkpoints.archive import Archive, open_archive, recover_record
from supervisor.checkpoints.objects.bulk import FOLDER
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId

ID = "a0001-i0000040"
RUN = "demo"


class Killed(BaseException):
    """Not an Exception, as a kill is none."""


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def sealed_store(root: Path, *ids: str, **more: object) -> PosixStore:
    """A store with these saves, completed."""
    store = new_store(root)
    for checkpoint in ids:
        save = SaveId.parse(checkpoint)
        write_save(store, save.attempt, save.step, **more)
        store.seal(checkpoint)
    return store


def look_at(root: Path, **more: object) -> PosixStore:
    """The store as another process sees it."""
    return PosixStore(str(root), WORLD, Now(), **more)


def archive_of(place: Path | str, store: PosixStore, **more: object) -> Archive:
    return open_archive(str(place), RUN, store, Now(), threads=2, **more)


def made(place: Path | str, store: PosixStore, **more: object) -> Archive:
    archive = archive_of(place, store, **more)
    archive.make()
    return archive


def recover(place: Path | str, into: Path) -> tuple[str, ...]:
    return recover_record(str(place), RUN, str(into))


def lose(root: Path) -> PosixStore:
    """All is gone but the folder itself, as of a file system made anew."""
    shutil.rmtree(root)
    root.mkdir()
    return look_at(root)


def data_of(folder: str) -> dict[str, bytes]:
    """Name -> content of a save's files; sidecars are none."""
    return {
        name: (Path(folder) / name).read_bytes() for name in os.listdir(folder) if not (Path(folder) / name).is_dir()
    }


def bulk_file(place: Path, checkpoint: str, name: str) -> Path:
    return place / FOLDER / RUN / "saves" / checkpoint / name
