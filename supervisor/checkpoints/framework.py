"""Has the framework itself finished a save? Torch DCP and Megatron publish `.metadata` last but one.

All shards present and of a stable size mean nothing: they may stay so for good with no `.metadata` (shared facts).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from supervisor.checkpoints.posix import open_regular, read_bounded

_JSON_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Framework:
    """`at` is when `.metadata` was written, wall seconds by the file system's clock; None when there is none."""

    done: bool
    why: str
    at: float | None = None


def framework_done(save: str, now: float, settle_s: float) -> Framework:
    """Look at the markers in the folder `save`. Raises OSError when they can't be seen.

    `now` in wall seconds. A metadata.json that has been torn for `settle_s` seconds is one whose writer is dead: its 63
    bytes take no time, and they can be repaired, so it holds up nothing.
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
    torn_at = _torn_at(os.path.join(save, "metadata.json"))
    if torn_at is not None and now - torn_at < settle_s:
        return Framework(done=False, why="metadata.json does not parse yet", at=at)
    return Framework(done=True, why=".metadata is whole", at=at)


def _newer_temporary(save: str, mtime_ns: int) -> bool:
    try:
        return os.lstat(os.path.join(save, ".metadata.tmp")).st_mtime_ns >= mtime_ns
    except FileNotFoundError:
        return False


def _torn_at(path: str) -> float | None:
    """When a metadata.json that does not parse was last written, wall seconds; None when it is absent or parses."""
    try:
        written = os.lstat(path).st_mtime
        json.loads(read_bounded(path, _JSON_LIMIT))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return written
    return None
