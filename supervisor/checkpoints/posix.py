"""The store's touch on the file system: bounded reads, whole files, folders, and removal.

OSError is left as it is: to the store it means "can't be judged now", never "broken". Only ENOENT and ENOTDIR say
something about the save itself, and each caller gives them their meaning.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass

from supervisor import durable

Step = Callable[[str], None]
"""Called at each boundary of a change with its name. Real use passes nothing; crash tests stop the work there."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one content of a file from the next without reading it. `size` in bytes."""

    size: int
    mtime_ns: int
    inode: int


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in a stat result."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


def why(error: OSError) -> str:
    """One clause for people: which file, and what the system says."""
    name = os.path.basename(os.fsdecode(error.filename)) if error.filename else "the store"
    return f"{name}: {error.strerror or error}"


def no_step(_name: str) -> None:
    """The hook of real use."""


def open_regular(path: str) -> int:
    """Open a regular file for reading, never through a symlink and never waiting on a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "is not a regular file", path)
    return descriptor


def read_bounded(path: str, limit: int) -> bytes:
    """Read a small file whole. Raises FileNotFoundError, or OSError (also when it has more than `limit` bytes)."""
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(27, f"has more than {limit} bytes", path)
    return data


def exists(path: str) -> bool:
    """Is the name there, whatever it is? Raises OSError when that can't be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def names_in(path: str) -> list[str]:
    """The names in a folder, sorted; empty when there is no such folder. Raises OSError."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_folder(path: str) -> None:
    """Make one folder (0700) durable under its parent, or leave what is there. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    durable.sync_folder(os.path.dirname(path))


def create_whole(path: str, data: bytes, step: Step) -> bool:
    """Create a file exclusively, with the boundaries named. True when this call made it."""
    name = os.path.basename(path)
    step(f"before {name}")
    made = durable.create_whole(path, data)
    step(f"after {name}")
    return made


def replace_whole(path: str, data: bytes, step: Step) -> None:
    """Replace a file at once, with the boundaries named."""
    name = os.path.basename(path)
    step(f"before {name}")
    durable.replace_whole(path, data)
    step(f"after {name}")


def remove_save(path: str) -> None:
    """Remove a save's folder; what names it complete goes first, so that no other tool takes the rest for whole.

    Raises OSError; a symlink in its place is refused, and no symlink inside is followed.
    """
    if not exists(path):
        return
    for name in (".metadata", "metadata.json"):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            continue
    shutil.rmtree(path)
