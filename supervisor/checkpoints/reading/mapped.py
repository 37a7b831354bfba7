"""Sums of mapped files, in processes of their own.

Reading copies every byte before it can be summed, and the copy costs more than the sum: a file that lies in memory is
summed faster than it can be read (one core: 24 GB/s mapped beside 14 for a plain read, and 10 for a read with the sum).
But a mapped file that is cut short, or whose disk fails, kills whoever touches it (SIGBUS). So it is done by a process
that may die: then the file is read in the ordinary way, which gives an error that can be told.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import xxhash

from supervisor.checkpoints.reading import mapped_child
from supervisor.checkpoints.reading.mapped_child import WINDOW

WORTH_IT: Final = 256 << 20
"""Bytes from which on it is worth a process, which takes 30 ms to start."""


PROBES: Final = 16
"""Places of a file that are looked at to tell whether it lies in memory."""


def is_in_memory(descriptor: int, size: int) -> bool:
    """Does the page cache hold the file, as far as some places in it tell? Reads nothing from disk.

    From disk a mapped file comes slower than one that is read: the kernel reads ahead of reads, and not so of faults.
    """
    try:
        for probe in range(PROBES):
            os.preadv(descriptor, [bytearray(1)], size * probe // PROBES, os.RWF_NOWAIT)
    except (OSError, AttributeError):  # not in memory; or this file system, or this system, can't tell
        return False
    return True


class MappedSums:
    """One process that sums files given to it. Not for several threads at once."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # Without the site's start-up files, which take half of the time; xxhash is found where we have found it.
        library = os.path.dirname(os.path.dirname(xxhash.__file__))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", mapped_child.__file__, str(theirs.fileno()), library],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours

    def sum(
        self, descriptor: int, size: int, take: Callable[[int], None], progress: Callable[[int], None]
    ) -> str | None:
        """xxh3_128 of an open file of `size` bytes; None when the process is no more.

        `take` is asked before each window and `progress` told after it; what `take` raises goes through, and the process
        is then not fit for another file.
        """
        try:
            socket.send_fds(self._socket, [size.to_bytes(8, "little")], [descriptor])
            for at in range(0, size, WINDOW):
                count = min(WINDOW, size - at)
                take(count)
                self._socket.sendall(b"n")
                if self._read(1) != b"y":
                    return None
                progress(count)
            digest = self._read(16)
        except OSError:
            return None
        return digest.hex() if len(digest) == 16 else None

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self._socket.recv(count - len(data))):
            data += more
        return data

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
