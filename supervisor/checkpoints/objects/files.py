"""The touch on the file system of a POSIX store.

OSError is left as it is. Only FileNotFoundError and NotADirectoryError say that something looks absent.
"""

from __future__ import annotations

import os

from supervisor import durable
from supervisor.checkpoints import posix


class Files:
    """The real one. Tests give one that lags, loses replies, or hangs."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder. Raises OSError."""
        return os.listdir(folder)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder; links are none. Raises OSError."""
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def read(self, path: str, limit: int) -> bytes:
        """A regular file, whole, opened anew. Raises OSError, also for more than `limit` bytes."""
        return posix.read_bounded(path, limit)

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a regular file, `size` at most. Raises OSError."""
        with os.fdopen(posix.open_regular(path), "rb") as file:
            return file.read(size)

    def create(self, path: str, data: bytes) -> bool:
        """Make it, whole and durable, or leave what is there. True when this call made it. Raises OSError."""
        return durable.create_whole(path, data)

    def make_root(self, path: str) -> None:
        """Make a folder and those above it, or leave what is there. Raises OSError."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def make_folder(self, path: str) -> None:
        """Make one folder durable under its parent, or leave what is there. Raises OSError."""
        posix.make_folder(path)

    def changed_ns(self, path: str) -> int:
        """When it was last linked or written, by the file system's own clock. Raises OSError."""
        return os.lstat(path).st_ctime_ns

    def remove(self, path: str) -> None:
        """Remove one file. Raises OSError."""
        os.unlink(path)
