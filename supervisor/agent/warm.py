"""The warm process of a node: it has imported torch once and forks ranks that begin with their first statement.

`RELIGHT_NODE=n001 python -m supervisor.agent.warm RUN_DIR [MODULE ...]`; what is imported is torch, torch.distributed and
torch.distributed.checkpoint unless modules are named. It listens on warm-NODE.sock. A connection is one rank: a line
`{"argv", "env", "cwd", "log"}` is answered by `{"refused": why}` or `{"pid"}` and, at its end, `{"code"}` or
`{"signal"}`. A line `{"signal": n}` is passed on, and a rank is killed when its connection closes.

Forking is sound only from one thread and before CUDA is initialised; both are checked before every fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

from slurm import sockets
from supervisor.agent import forked

MODULES: Final = ("torch", "torch.distributed", "torch.distributed.checkpoint")
"""Imported by name, for what runs on a node must not need torch to be imported, checked or tested."""

ONE_THREAD: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Set to 1 before the import: a second thread hangs the forked ranks, and changes their bits (both measured)."""

_LONGEST_REQUEST: Final = 1 << 20  # bytes; an environment is a few kB
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class Rank:
    """One connection: a request first, then a forked rank."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.buffer = b""
        self.pid: int | None = None

    def tell(self, **answer: object) -> None:
        """Answer the shim; one that is gone needs no answer."""
        with suppress(OSError):
            self.link.sendall(json.dumps(answer).encode() + b"\n")


class Warm:
    """The server: one thread, woken by a connection, a line or the end of a rank."""

    def __init__(self, run_dir: str, node: str) -> None:
        """Listen. Raises OSError when the socket cannot be made."""
        self._own_environment = dict(os.environ)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ranks: dict[int, Rank] = {}
        self._selector = selectors.DefaultSelector()
        self._path = sockets.warm_socket(sockets.make_socket_dir(run_dir), node)
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._path)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> NoReturn:
        """Serve until killed; the ranks die with this process."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    with suppress(OSError):  # it gave up before it was taken
                        link, _ = self._listener.accept()
                        self._selector.register(link, selectors.EVENT_READ, Rank(link))
                elif key.fileobj == self._wake:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                else:
                    self._hear(key.data)
            self._reap()

    def _hear(self, rank: Rank) -> None:
        try:
            data = rank.link.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        rank.buffer += data
        if not data or len(rank.buffer) > _LONGEST_REQUEST:
            self._drop(rank)
            return
        while b"\n" in rank.buffer:
            line, _, rank.buffer = rank.buffer.partition(b"\n")
            if rank.pid is None:
                self._serve_one(rank, line)
            else:
                self._pass_on(rank.pid, line)

    def _drop(self, rank: Rank) -> None:
        """The connection has closed: whoever asked for the rank is dead, or no longer wants it."""
        self._selector.unregister(rank.link)
        rank.link.close()
        if rank.pid is not None:
            os.kill(rank.pid, signal.SIGKILL)  # not reaped yet, or it would have been dropped then

    def _pass_on(self, pid: int, line: bytes) -> None:
        with suppress(ValueError, TypeError, KeyError, OSError, RecursionError):
            os.kill(pid, signal.Signals(json.loads(line)["signal"]))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self._ranks.pop(pid, None)
            if rank is None or rank.link.fileno() < 0:
                continue
            code = os.waitstatus_to_exitcode(status)
            rank.tell(**({"code": code} if code >= 0 else {"signal": -code}))
            rank.pid = None
            self._drop(rank)

    def _close(self) -> None:
        """In a fork: let go of what is the server's, so that each connection ends with whom it belongs to."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._wake)
        os.close(self._wake_write)

    def _serve_one(self, rank: Rank, line: bytes) -> None:
        try:
            request = forked.read_request(line)
            why = forked.refusal(request, self._own_environment, sys.executable) or unfit()
        except (ValueError, RecursionError) as error:
            why = f"the request: {error}"
        if why:
            rank.tell(refused=why)
            return
        with suppress(BlockingIOError):
            if rank.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                return  # it has stopped waiting and started the rank cold: a second one must not begin
        shim = _peer(rank.link)
        group, cpus = _group_of(shim), _cpus_of(shim)
        warm = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != warm:
                os._exit(1)
            self._close()
            forked.become(request, group, cpus)
        forked.join_group(pid, group)
        self._ranks[pid] = rank
        rank.pid = pid
        rank.tell(pid=pid)


def unfit() -> str:
    """Why this process may not fork now; empty when it may."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        return f"the warm process has {threads} threads; a fork would carry their locks and not them"
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the warm process; it does not survive a fork"
    return ""


def _peer(link: socket.socket) -> int:
    """The pid of the shim that asks."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _group_of(shim: int) -> int:
    """The process group of the shim. The rank joins it, so that it is stopped with its shim."""
    try:
        return os.getpgid(shim)
    except ProcessLookupError:
        return 0  # a group of its own; the closed connection ends it soon


def _cpus_of(shim: int) -> frozenset[int]:
    """The cores that the shim may run on: a cluster binds each task of a step, and ours is another step; empty: as we."""
    try:
        return frozenset(os.sched_getaffinity(shim))
    except OSError:
        return frozenset()


def main(arguments: list[str]) -> NoReturn:
    """`RUN_DIR [MODULE ...]`: import, then serve until killed. Raises ValueError when nothing says which node this is."""
    run_dir, *modules = arguments
    node = os.environ.get("SLURMD_NODENAME") or os.environ.get("RELIGHT_NODE") or ""
    if not node or "/" in node:
        raise ValueError("neither SLURMD_NODENAME nor RELIGHT_NODE says which node this is")
    for name in ONE_THREAD:
        os.environ[name] = "1"
    for module in modules or MODULES:
        importlib.import_module(module)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # the collector of a fork would touch, and so copy, every shared page
    Warm(run_dir, node).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
