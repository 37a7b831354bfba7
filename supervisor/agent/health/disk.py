"""Is there room where this run writes, and may it be written to? `statvfs` in a child, for a dead file server hangs it.

python -I -S disk.py PATH    prints one JSON object
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # the child imports no more than it needs: it must start in some 10 ms
if TYPE_CHECKING:
    from supervisor.agent.health.child import Ran
    from supervisor.agent.health.results import Verdict

ROOM = 1 << 30
"""Bytes that must be free: less than one rank's shard of a checkpoint."""

SHARE = 0.02
"""... but never more than this share of the whole: /dev/shm of a container may have 64 MB. Both are our own choice."""

_SHM = "/dev/shm"  # noqa: S108  the place itself, not a file in it


def judge(path: str, ran: Ran) -> Verdict:
    """What a look at `path` says. A full /dev/shm is memory (docs/diagnosis.md, oom.host), not storage."""
    from supervisor.agent.health.results import healthy, unhealthy, unknown  # noqa: PLC0415  not for the child

    if ran.code is None:
        return unknown(f"{path}: {ran.why}")
    seen = ran.record()
    if seen is None or ran.code != 0:
        return unknown(f"{path}: exit {ran.code}, {ran.output[-200:]!r}")
    if isinstance(seen.get("error"), str):
        return unknown(f"{path}: {seen['error']}")
    numbers = _numbers(seen)
    if numbers is None:
        return unknown(f"{path}: made no sense of {str(seen)[:200]}")
    size, free, inodes, inodes_free = numbers
    if seen.get("read_only") is True:
        return unhealthy("disk-read-only", f"{path} is mounted read-only")
    kind = "shm-full" if path.startswith(_SHM) else "disk-full"
    if free < min(ROOM, SHARE * size):
        return unhealthy(kind, f"{path} is full: {free / 1e9:.2f} GB of {size / 1e9:.1f} GB are free")
    if inodes and not inodes_free:  # some file systems count no inodes
        return unhealthy(kind, f"{path} is full: no inode is free")
    return healthy(f"{path}: {free / 1e9:.1f} GB of {size / 1e9:.1f} GB are free")


def _numbers(seen: dict[str, object]) -> tuple[int, int, int, int] | None:
    size, free, inodes, left = (seen.get(key) for key in ("size", "free", "inodes", "inodes_free"))
    if type(size) is not int or type(free) is not int or type(inodes) is not int or type(left) is not int:
        return None
    return (size, free, inodes, left) if size > 0 and min(free, inodes, left) >= 0 else None


def look(path: str) -> dict[str, object]:
    """What the file system says; blocks for as long as it likes."""
    try:
        seen = os.statvfs(path)
    except OSError as error:
        return {"error": error.strerror or "OSError"}
    return {
        "size": seen.f_blocks * seen.f_frsize,
        "free": seen.f_bavail * seen.f_frsize,
        "inodes": seen.f_files,
        "inodes_free": seen.f_favail,
        "read_only": bool(seen.f_flag & os.ST_RDONLY),
    }


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
