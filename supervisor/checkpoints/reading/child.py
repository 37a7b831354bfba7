"""The process that reads what is hostile. Run as a file by a bare interpreter: `python -I -S child.py FOLDER MEMORY CPU`.

It may use so much address space (bytes) and so many seconds of a CPU, and can write no file. What it has read goes to
its standard output as plain data: 8 bytes of length, a JSON header, then the columns of every file's extents.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor.checkpoints.reading.describe import Described

NO_MEMORY_EXIT = 41


def main(folder: str, memory: int, cpu_s: int) -> int:
    """Read one folder; the exit code."""
    for limit, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        # At the hard limit of CPU the kernel sends SIGKILL, which would not tell why.
        resource.setrlimit(limit, (most, most + (limit == resource.RLIMIT_CPU)))
    # A large save is millions of objects and no cycle: looking for cycles would double the time.
    gc.disable()
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))
    from supervisor.checkpoints.reading.describe import describe  # noqa: PLC0415 - the limits stand first

    try:
        _tell(describe(folder))
    except OSError as error:
        _emit({"unreadable": [os.path.basename(str(error.filename or "")), error.strerror or str(error)]}, [])
    except MemoryError:
        return NO_MEMORY_EXIT
    return 0


def _tell(described: Described) -> None:
    layout = described.layout
    files = sorted(layout.files.items())
    header = {
        "format": described.format,
        "save_id": layout.save_id,
        "checkpoint_id": layout.checkpoint_id,
        "transformed": layout.transformed,
        "counters": described.counters,
        "findings": [[found.code, found.path, found.detail] for found in described.found.all()],
        "tensors": [[t.name, t.dtype, t.shape, t.chunks] for t in layout.tensors.values()],
        "objects": sorted(layout.objects),
        "names": layout.names,
        "files": [[name, len(extents.starts)] for name, extents in files],
    }
    columns = [column for _, e in files for column in (e.starts, e.lengths, e.payloads, e.items)]
    _emit(header, columns)


def _emit(header: dict[str, Any], columns: list[Any]) -> None:
    # Strange code points in hostile names must not stop the answer: JSON escapes them.
    text = json.dumps(header).encode("ascii")
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for column in columns:
            out.write(column.tobytes())


if __name__ == "__main__":
    code = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    # Millions of objects need not be taken apart one by one before the end.
    os._exit(code)
