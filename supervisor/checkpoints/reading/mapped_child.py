"""The process of `mapped.py`: `python -I -S mapped_child.py SOCKET LIBRARY`. It maps and sums files, and may die of it."""

from __future__ import annotations

import mmap
import os
import socket
import sys

WINDOW = 64 << 20
"""Bytes that are mapped at once; between two windows the limit of speed is asked."""


def serve(line: socket.socket) -> None:
    """Sum files until the other end is closed. A file comes as 8 bytes of size with its descriptor."""
    import xxhash  # noqa: PLC0415 - its place is known only when the process has begun

    while True:
        head, descriptors, _, _ = socket.recv_fds(line, 8, 1)
        if len(head) != 8 or len(descriptors) != 1:
            return
        digest = xxhash.xxh3_128()
        size, at = int.from_bytes(head, "little"), 0
        while at < size:
            if line.recv(1) != b"n":
                return
            count = min(WINDOW, size - at)
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            mapped = mmap.mmap(descriptors[0], count, flags=flags, prot=mmap.PROT_READ, offset=at)
            with mapped, memoryview(mapped) as view:
                digest.update(view)
            at += count
            line.sendall(b"y")
        os.close(descriptors[0])
        line.sendall(digest.digest())


if __name__ == "__main__":
    sys.path.append(sys.argv[2])
    serve(socket.socket(fileno=int(sys.argv[1])))
