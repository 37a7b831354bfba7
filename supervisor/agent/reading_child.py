"""The process that reads files of a save for the controller: `python -P -m supervisor.agent.reading_child ROOT THREADS`.

It is told on its standard input, a line of JSON each: `{"files": [...], "rate": bytes a second or null}`; with the input's
end it ends. It answers a line a file, as in docs/contracts.md (section 4, `read-part`). What it finds is found by the same
code as by threads of the controller. It gives way to everything else on its node, and writes nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import queue
import resource
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

from supervisor.agent.reading import AWAY_EXIT
from supervisor.checkpoints.posix import stamp_of
from supervisor.checkpoints.reading.content import ContentReader, Hand, Job
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import Structure, limits_for, metadata_bytes, read_structure
from supervisor.checkpoints.reading.throttle import CancelledError, Pace, Throttle

ROOM: Final = 1 << 30
"""Bytes of memory beside what the metadata takes: buffers of 2 MiB a thread, stacks of 8."""
FINDINGS: Final = 8
"""Of one file; an answer must stay one line. What is broken is read again by another, who tells all of it."""
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
_IDLE: Final = 3 << 13
"""linux/ioprio.h: class 3 (idle) in the upper bits."""

Asked = dict[str, Any]


def give_way() -> None:
    """Nice 19, and the disk only when nobody else wants it, where the scheduler of the disk knows such a thing."""
    os.nice(19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, 1, 0, _IDLE)  # one that is refused is only less kind


def limit_memory(metadata: int) -> None:
    """Bytes of private memory at most. Only the soft limit: the process that reads the metadata sets one of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = ROOM + 14 * metadata
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


class Reader:
    """Reads what it is given, by some threads; each answer is one line on the standard output."""

    def __init__(self, root: str, threads: int, metadata: int) -> None:
        """`metadata`: bytes of it."""
        self._root = root
        self._metadata = metadata
        self._threads = threads
        self._asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._throttle = Throttle(Pace())
        self._telling = threading.Lock()
        self._looking = threading.Lock()
        self._structure: Structure | None = None

    def run(self, lines: Iterable[bytes]) -> None:
        """Until the last line. What is still being read then is given up."""
        for _ in range(self._threads):
            threading.Thread(target=self._work, daemon=True).start()
        for line in lines:
            told = json.loads(line)
            self._throttle.pace.set(told["rate"])
            for file in told["files"]:
                self._asked.put(file)
        self._throttle.cancel()

    def _work(self) -> None:
        hand = Hand(mapping=False)
        while True:
            asked = self._asked.get()
            try:
                answer = self._read(asked, hand)
            except CancelledError:
                return
            except Exception as error:  # noqa: BLE001  one file's fault is told, and the next is read
                answer = {"fault": f"{type(error).__name__}: {error}"[:300]}
            self._tell({"path": asked["path"], **answer})

    def _read(self, asked: Asked, hand: Hand) -> Asked:
        name = asked["path"]
        if "/" in name or name in {"", ".", ".."}:
            return {"fault": "not the name of a file in the folder"}
        try:
            stamp = stamp_of(os.lstat(os.path.join(self._root, name)))
        except OSError as error:
            return {"fault": error.strerror or str(error)}
        if stamp.size != asked["size"]:
            return {"fault": f"it has {stamp.size} bytes here, not {asked['size']}"}
        structure = self._described() if asked["crc"] else None
        extents = structure.files.get(name) if structure is not None else None
        if asked["crc"] and extents is None:
            return {"fault": "the metadata does not name it here"}
        job = Job(name, stamp, sha256=asked["sha256"], extents=extents)
        read = ContentReader(self._root, structure, self._throttle).read(job, hand, lambda _: None)
        return {
            "size": stamp.size,
            "xxh3": read.xxh3,
            "items": len(extents.starts) if extents is not None else None,
            "findings": [[found.code, found.path, found.detail] for found in read.findings[:FINDINGS]],
        }

    def _described(self) -> Structure:
        """What the metadata says, read once and in a process of its own, as everywhere."""
        with self._looking:
            if self._structure is None:
                self._structure = read_structure(self._root, limits_for(self._metadata))
            return self._structure

    def _tell(self, answer: Asked) -> None:
        line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        with self._telling:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def main(root: str, threads: int) -> int:
    """Read until the input ends; AWAY_EXIT when there is no such folder here."""
    give_way()
    try:
        metadata = metadata_bytes(look_at(root).sizes)
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return AWAY_EXIT
    limit_memory(metadata)
    Reader(root, threads, metadata).run(sys.stdin.buffer)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # a thread may hang in the kernel, on a file system that is gone
