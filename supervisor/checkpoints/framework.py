"""Has the framework itself finished a save? Torch DCP and Megatron publish `.metadata` last but one.

All shards present and of a stable size mean nothing: they may stay so for good with no `.metadata` (shared facts).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from supervisor.checkpoints.posix import open_regular


@dataclass(frozen=True, slots=True)
class Framework:
    """`at` is when `.metadata` was written, wall seconds by the file system's clock; None when there is none."""

    done: bool
    why: str
    at: float | None = None


def framework_done(save: str) -> Framework:
    """Look at the markers in the folder `save`. Raises OSError when they can't be seen.

    metadata.json is none of them, though Megatron writes it last: its 63 bytes can be repaired (see `sealing`), and a
    save whose trainer died over them must not be given up as unfinished.
    """
    path = os.path.join(save, ".metadata")
    try:
        descriptor = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return Framework(done=False, why="no .metadata yet")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        at = found.st_mtime
        if found.st_size == 0:
            return Framework(done=False, why=".metadata is empty", at=at)
        file.seek(-1, os.SEEK_END)
        # A pickle ends with its STOP opcode, which is a full stop; nothing of it is ever unpickled here.
        if file.read(1) != b".":
            return Framework(done=False, why=".metadata is cut short", at=at)
    if _newer_temporary(save, found.st_mtime_ns):
        return Framework(done=False, why=".metadata.tmp is newer than .metadata: it is being written again", at=at)
    return Framework(done=True, why=".metadata is whole", at=at)


def _newer_temporary(save: str, mtime_ns: int) -> bool:
    try:
        return os.lstat(os.path.join(save, ".metadata.tmp")).st_mtime_ns >= mtime_ns
    except FileNotFoundError:
        return False
