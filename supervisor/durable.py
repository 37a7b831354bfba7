"""Files that are either there whole or not there: exclusive creation and atomic replacement, durable through a power loss.

`link(2)` refuses an existing name on every POSIX file system, NFS included, and shows the whole file at once;
`rename(2)` replaces at once.
"""

from __future__ import annotations

import os
import secrets


def _write_temporary(path: str, data: bytes, mode: int, *, sync: bool = True) -> str:
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    return temporary


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_whole(path: str, data: bytes, mode: int = 0o600) -> bool:
    """Create `path` with `data`, or leave what is there. True when this call created it. Raises OSError."""
    temporary = _write_temporary(path, data, mode)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def replace_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace `path`: a reader sees the old file or the new one. Raises OSError."""
    _replace(_write_temporary(path, data, mode), path)
    sync_folder(os.path.dirname(path))


def show_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` as `replace_whole` does, but without waiting for the disk. Raises OSError.

    For what is made anew from the journal: a power loss may leave it old or empty, and nobody may need it then.
    """
    _replace(_write_temporary(path, data, mode, sync=False), path)


def _replace(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
