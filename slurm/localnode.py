"""The daemon of one node of a local cluster: it starts, watches and ends the processes of that node.

Started by `LocalCluster.boot` with `python -I -S`: standard library only. The daemon is the leader of a session of its
own, all processes of the node belong to that session, and its tasks die with it, as they do when a server drops.
It outlives whoever started it. One thread, one loop: a datagram, the end of a process and the next beat wake it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from slurm import localfiles, processes, sockets
from slurm.cluster import LaunchSpec
from slurm.localfiles import NodeFile, Step, Task

BEAT_S: Final = 1.0
"""How often node.json is written when nothing changes (contracts, section 6)."""

_STEPS_KEPT: Final = 50  # of ended steps; older ones are forgotten, their names come never again
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER: Final = 36
_NOT_STARTED: Final = 127  # as a shell says that a command could not be started
_libc = ctypes.CDLL(None, use_errno=True)


class Node:
    """One node. It obeys no epoch that is lower than the highest it has seen, also over its own restart."""

    def __init__(self, run_dir: str, name: str, socket_dir: str) -> None:
        """Take the node over from a daemon that is gone. Raises OSError when there is no room for its files."""
        self._run_dir = run_dir
        self._name = name
        self._sockets = socket_dir
        self._announce_to = sockets.cluster_socket(socket_dir)
        own = processes.look(os.getpid())
        assert own is not None  # noqa: S101  this process lives
        before = _previous(run_dir, name)
        self._file = NodeFile(name, os.getpid(), own.start_ticks, boot=localfiles.boot_id())
        if before is not None:
            self._bury(before)
        self._changed = True
        self._ending = False
        self._watched: dict[int, int] = {}  # pid of what is being ended -> its pidfd
        self._selector = selectors.DefaultSelector()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = sockets.node_socket(socket_dir, name)
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._socket.bind(path)
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ, self._hear)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake = wake_read
        self._selector.register(wake_read, selectors.EVENT_READ, self._drain)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up is all that is wanted
        signal.signal(signal.SIGTERM, lambda *_: self._shut_down())

    def serve(self) -> None:
        """Run the node until it is told to shut down and nothing of it is left."""
        due = 0.0
        while True:
            self._settle()
            now = time.monotonic()
            done = self._ending and not any(step.running for step in self._file.steps.values())
            if self._changed or done or now >= due:
                self._file.released = done
                self._show(now)
                due = now + BEAT_S
            if done:
                with suppress(FileNotFoundError):
                    os.unlink(sockets.node_socket(self._sockets, self._name))
                return
            for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                key.data()

    def show(self) -> None:
        """Write node.json for the first time: whoever reads it from now on finds a living node."""
        self._show(time.monotonic())

    # --- what it is told ---

    def _hear(self) -> None:
        while True:
            try:
                data, sender = self._socket.recvfrom(65536)
            except BlockingIOError:
                return
            try:
                order = json.loads(data)
                operation, epoch = order["op"], order.get("epoch")
                if operation == "ping":
                    with suppress(OSError):
                        self._socket.sendto(str(order["token"]).encode(), sender)
                    continue
                if not isinstance(epoch, int) or epoch < self._file.epoch:
                    _say(f"{operation!r} of epoch {epoch!r} ignored: epoch {self._file.epoch} was here")
                    continue
                self._changed |= epoch > self._file.epoch
                self._file.epoch = epoch
                self._obey(operation, order)
            except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
                _say(f"not obeyed: {data[:200]!r}: {error!r}")

    def _obey(self, operation: object, order: Mapping[str, Any]) -> None:
        if operation == "shutdown":
            self._shut_down()
        elif operation == "kill":
            # A step that is killed before its order to start has come must not start afterwards.
            step = self._file.steps.setdefault(localfiles.good_name(order["name"]), Step(self._file.epoch))
            step.killed = self._changed = True
        elif operation == "run" and not self._ending:
            name = localfiles.good_name(order["name"])
            if name not in self._file.steps:
                self._start(localfiles.read_order(self._run_dir, name))
        else:
            raise ValueError("no such operation now")

    def _shut_down(self) -> None:
        self._ending = True
        for step in self._file.steps.values():
            step.killed = True

    # --- tasks ---

    def _start(self, spec: LaunchSpec) -> None:
        step = Step(spec.epoch)
        self._file.steps[spec.name] = step
        self._changed = True
        # Of a Slurm job around us only the job may be seen: the place in it of our starter is not the place of a task.
        outer = {key: value for key, value in os.environ.items() if key not in {"SLURM_PROCID", "SLURMD_NODENAME"}}
        for procid, host in enumerate(spec.hosts):
            if host != self._name:
                continue
            env = outer | dict(spec.env)
            env |= {"RELIGHT_PROCID": str(procid), "RELIGHT_STEP": spec.name}
            env |= {"RELIGHT_NODE": self._name, "RELIGHT_RUN_DIR": self._run_dir}
            try:
                pid = os.fork()
            except OSError as error:
                _say(f"{spec.name} task {procid}: {error}")
                step.tasks[procid] = Task(0, ended=True, gone=True, code=_NOT_STARTED)
                continue
            if pid == 0:
                _become(spec, env, self._file.pid)
            with suppress(OSError):  # the child does the same; whoever is second finds it done
                os.setpgid(pid, pid)
            step.tasks[procid] = Task(pid)

    def _settle(self) -> None:
        """Reap what has ended, end what must end, and call a task gone once nothing of it is left."""
        ended = dict(iter(_reap, None))
        for step in self._file.steps.values():
            for task in step.tasks.values():
                if not task.ended and task.pid in ended:
                    code = os.waitstatus_to_exitcode(ended[task.pid])
                    task.ended = True
                    task.code, task.signal = (code, None) if code >= 0 else (None, -code)
        for name, step in self._file.steps.items():
            if step.running:
                self._settle_step(name, step)
        over = [name for name, step in self._file.steps.items() if not step.running]
        for name in over[:-_STEPS_KEPT]:
            del self._file.steps[name]

    def _settle_step(self, name: str, step: Step) -> None:
        left = [task for task in step.tasks.values() if not task.gone]
        ending = [task for task in left if task.ended or step.killed]
        if not ending:
            return
        for task in ending:
            with suppress(ProcessLookupError):
                os.killpg(task.pid, signal.SIGKILL)
        here = processes.members(self._file.pid)  # after the signals, and once: all of /proc is read for it
        groups = {process.group for process in here}
        self._end([process.pid for process in here if process.group in {task.pid for task in ending}])
        gone = [task for task in ending if task.ended and task.pid not in groups]
        if len(gone) == len(left) or step.killed:
            # Some leave their group; they still carry the name of the step that they were started in.
            strays = [process.pid for process in here if self._is_stray(process.pid, name)]
            self._end(strays)
            if strays and len(gone) == len(left):
                return
        for task in gone:
            task.gone = self._changed = True

    def _is_stray(self, pid: int, step: str) -> bool:
        return pid != self._file.pid and processes.holds(pid, {"RELIGHT_STEP": step})

    def _end(self, pids: list[int]) -> None:
        """Kill, and be woken when it has happened; not all of them are our own children."""
        for pid in pids:
            if pid not in self._watched:
                with suppress(ProcessLookupError):
                    handle = self._watched[pid] = os.pidfd_open(pid)
                    self._selector.register(handle, selectors.EVENT_READ, lambda pid=pid: self._forget(pid))
        processes.send(pids, signal.SIGKILL)

    def _forget(self, pid: int) -> None:
        handle = self._watched.pop(pid)
        self._selector.unregister(handle)
        os.close(handle)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    # --- what it shows ---

    def _show(self, now: float) -> None:
        self._file.beat, self._file.wall = now, time.time()
        try:
            localfiles.write_node(self._run_dir, self._file)
        except OSError as error:
            _say(f"node.json: {error}")  # a full disk is no reason to drop the tasks; the next beat tries again
            return
        if self._changed:
            self._changed = False
            with suppress(OSError):  # nobody may be listening
                self._socket.sendto(b"!", sockets.cluster_socket(self._sockets))

    def _bury(self, before: NodeFile) -> None:
        """End what a former daemon has left, and remember its epoch and its steps, so that none starts twice."""
        survivors = processes.of_node(before.pid, before.start_ticks, self._name, self._run_dir)
        while survivors:
            processes.send(survivors, signal.SIGKILL)
            processes.wait_gone(survivors, 1.0)
            survivors = processes.of_node(before.pid, before.start_ticks, self._name, self._run_dir)
        self._file.epoch, self._file.steps = before.epoch, before.steps
        for step in before.steps.values():
            for task in step.tasks.values():
                if not task.gone:
                    task.ended = task.gone = True
                    task.code, task.signal = None, int(signal.SIGKILL)


def _previous(run_dir: str, name: str) -> NodeFile | None:
    try:
        return localfiles.read_node(run_dir, name)
    except ValueError as error:
        _say(f"what was there before cannot be read: {error}")
        return None


def _reap() -> tuple[int, int] | None:
    """One ended child and its wait status, or None."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _become(spec: LaunchSpec, env: Mapping[str, str], node: int) -> NoReturn:
    """In the forked child: become the task. It dies with the daemon, as a task dies with its server."""
    try:
        os.setpgid(0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != node:  # it died before we had asked to be told
            os._exit(_NOT_STARTED)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        output = os.open(spec.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(spec.cwd)
        os.execvpe(spec.argv[0], spec.argv, env)  # noqa: S606  a list, no shell
    except BaseException as error:  # noqa: BLE001  a forked child must never go on as the daemon
        os.write(2, f"relight: {spec.name} on {env['RELIGHT_NODE']}: {spec.argv[0]} not started: {error!r}\n".encode())
        os._exit(_NOT_STARTED)


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """`RUN_DIR NAME SOCKET_DIR`: leave the daemon behind and return once it listens; exit 1 if it cannot.

    Where a living daemon holds the lock of this node already, that one stays and this one ends.
    """
    run_dir, name, socket_dir = arguments
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.setsid()
    os.close(ready)
    lock = os.open(f"{run_dir}/nodes/{name}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(tell, b"1")
        return
    # Orphans of the node come to us, not to an init that may not reap: what is not reaped keeps its group alive.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    node = Node(run_dir, name, socket_dir)
    node.show()
    os.write(tell, b"1")
    os.close(tell)
    node.serve()
