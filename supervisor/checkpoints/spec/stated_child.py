"""The process that reads a save's common state. Run as a file by a bare interpreter: `python -I -S stated_child.py
FILE START LENGTH MEMORY CPU`.

What it says goes to standard output as JSON: plain values by place. It may use so much address space (bytes) and so many
seconds of a CPU, and can write no file.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from typing import Any

NO_MEMORY_EXIT = 41
UNSOUND_EXIT = 42
_KEPT = 4000
_TEXT = 4000


def main(path: str, start: int, length: int, memory: int, cpu_s: int) -> int:
    """Read one object; the exit code."""
    for limit, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most + (limit == resource.RLIMIT_CPU)))
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))
    from supervisor.checkpoints.posix import open_regular  # noqa: PLC0415 - the limits stand first
    from supervisor.checkpoints.reading.archives import BadArchiveError  # noqa: PLC0415
    from supervisor.checkpoints.reading.objects import load_object  # noqa: PLC0415
    from supervisor.checkpoints.reading.unpickling import RefusedError  # noqa: PLC0415

    try:
        descriptor = open_regular(path)
        loaded, _ = load_object(lambda at, n: os.pread(descriptor, n, start + at), length)
        text = json.dumps(_by_place(loaded))
    except (BadArchiveError, RefusedError, RecursionError, OSError):
        return UNSOUND_EXIT
    except MemoryError:
        return NO_MEMORY_EXIT
    sys.stdout.write(text)
    return 0


def _by_place(loaded: Any) -> dict[str, Any]:
    if isinstance(loaded, list) and len(loaded) == 1:
        loaded = loaded[0]
    state = loaded if isinstance(loaded, dict) else {}
    found = {"common.checkpoint_version": state.get("checkpoint_version")}
    for place, held in (("arguments", state.get("args")), ("content", state.get("content_metadata"))):
        values = held if isinstance(held, dict) else getattr(held, "__dict__", {})
        found |= {f"{place}.{name}": value for name, value in list(values.items())[:_KEPT] if isinstance(name, str)}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    """What the JSON may hold: exact types, since a subclass could bring code of its own."""
    if type(value) is list:
        return len(value) <= _KEPT and all(type(item) is not list and _is_plain(item) for item in value)
    if type(value) is str:
        return len(value) <= _TEXT
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is bool or (type(value) is int and abs(value) < 1 << 62)


if __name__ == "__main__":
    code = main(sys.argv[1], *map(int, sys.argv[2:6]))
    sys.stdout.flush()
    os._exit(code)
