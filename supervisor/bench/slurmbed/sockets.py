"""The connections of another process, taken over so that they can be ended in a way that it would not end them itself."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from contextlib import suppress
from typing import Final

_PIDFD_GETFD: Final = 438  # pidfd_getfd(2), the same number on every architecture; Linux 5.6
_libc = ctypes.CDLL(None, use_errno=True)


def take(pid: int) -> list[socket.socket]:
    """Copies of every connected TCP socket that a process holds. Needs the right to trace it."""
    taken = []
    handle = os.pidfd_open(pid)
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            if not _is_socket(f"/proc/{pid}/fd/{entry}"):
                continue
            copy = _libc.syscall(_PIDFD_GETFD, handle, int(entry), 0)
            if copy < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            one = socket.socket(fileno=copy)
            connected = one.family == socket.AF_INET and one.type == socket.SOCK_STREAM
            with suppress(OSError):
                one.getpeername()
                if connected:
                    taken.append(one)
                    continue
            one.close()
    finally:
        os.close(handle)
    return taken


def reset(one: socket.socket) -> None:
    """End a connection with a reset: its peer reads ECONNRESET."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def _is_socket(path: str) -> bool:
    with suppress(OSError):
        return os.readlink(path).startswith("socket:")
    return False
