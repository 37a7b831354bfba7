"""Where the unix sockets of one run lie: short paths in a directory that only its owner can enter."""

from __future__ import annotations

import os
import stat
from hashlib import blake2b

LONGEST_PATH = 107
"""Bytes that fit into sockaddr_un.sun_path (unix(7): 108 with the final zero)."""

_LONGEST_NAME = 40
"""Room left for a socket's own name, such as node-NAME.sock."""


def socket_dir(run_dir: str) -> str:
    """The directory of this run's sockets; the same for everybody who asks with the same runtime directory.

    It lies in $XDG_RUNTIME_DIR where that is set and short enough, else in /tmp.
    """
    digest = blake2b(os.path.abspath(run_dir).encode(), digest_size=6).hexdigest()
    leaf = f"relight-{os.getuid()}-{digest}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and len(os.fsencode(f"{runtime}/{leaf}")) + 1 + _LONGEST_NAME <= LONGEST_PATH:
        return f"{runtime}/{leaf}"
    return f"/tmp/{leaf}"  # noqa: S108  its owner and mode are checked before use


def make_socket_dir(run_dir: str) -> str:
    """Make the directory if it is missing, and prove that nobody else can enter it.

    Raises PermissionError when the name is taken by another user, by a link, or is open to others: whoever could
    put a socket there could give orders to our nodes.
    """
    path = socket_dir(run_dir)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{path}: not a directory of this user with mode 0700") from None
    return path


def node_socket(sockets: str, node: str) -> str:
    """Where the daemon of a node listens."""
    return f"{sockets}/node-{node}.sock"


def cluster_socket(sockets: str) -> str:
    """Where the controller hears that something has changed."""
    return f"{sockets}/cluster.sock"


def agent_socket(sockets: str, node: str) -> str:
    """Where the agent of a node hears its ranks."""
    return f"{sockets}/agent-{node}.sock"


def agent_lock(sockets: str, node: str) -> str:
    """Whoever holds the lock of this file is the agent of the node."""
    return f"{sockets}/agent-{node}.lock"


def warm_socket(sockets: str, node: str) -> str:
    """Where the warm process of a node is asked for a rank."""
    return f"{sockets}/warm-{node}.sock"
