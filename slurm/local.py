"""One machine as a small cluster: each node is a daemon with a session of its own (`slurm.localnode`).

What is read comes from the files that the nodes write and from /proc; a read never waits for a node.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm import localfiles, processes, sockets
from slurm.cluster import ClusterView, LaunchSpec, NodeCondition, NodeRow, StepRow, Unreadable
from slurm.localfiles import NodeFile

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from slurm.localnode import main; main(sys.argv[1:])"


class BootFailed(Exception):  # noqa: N818  a past event, said as one
    """A node could not be started; the message names the node and where it says why."""


class LocalCluster:
    """`slurm.cluster.Cluster` on this machine. Nodes are started by `boot` and outlive this object."""

    def __init__(
        self,
        run_dir: str,
        nodes: tuple[str, ...],
        python: str = sys.executable,
        *,
        silent_after_s: float = 2.5,
        release_deadline_s: float = 5.0,
    ) -> None:
        """`silent_after_s`: age of the last beat (written every second) from which a living node counts as silent.

        Raises ValueError for a bad node name and PermissionError when the socket directory is not ours alone.
        """
        self._run_dir = os.path.abspath(run_dir)
        self._nodes = tuple(localfiles.good_name(node) for node in nodes)
        self._python = python
        self._silent_after_s = silent_after_s
        self._release_deadline_s = release_deadline_s
        self._sockets = sockets.make_socket_dir(self._run_dir)
        self._emptied: set[tuple[str, int, int]] = set()  # dead daemons that nothing is left of
        self._listener: _Listener | None = None

    def boot(self, *, revive: bool = False, deadline_s: float = 10.0) -> frozenset[str]:
        """Start the nodes that never were, that were released, or that an earlier boot of the machine ran.

        Living ones are adopted. A node that died stays dead unless `revive`: a controller that comes back must not
        bring a lost node back with it. Answers the nodes started. Raises BootFailed.
        """
        sockets.make_socket_dir(self._run_dir)  # a release takes it away
        started = {node: self._start(node) for node in self._nodes if self._wants_start(node, revive=revive)}
        until = time.monotonic() + deadline_s
        for node, process in started.items():
            try:
                code = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = -signal.SIGKILL
            if code != 0:
                raise BootFailed(f"{node} did not start; see {self._run_dir}/nodes/{node}/daemon.log")
        return frozenset(started)

    def read(self) -> ClusterView | Unreadable:
        """Nodes and steps from the node files. One file that cannot be read hides its steps, so all is Unreadable."""
        nodes: dict[str, NodeRow] = {}
        running: dict[str, set[str]] = {}
        known: dict[str, set[str]] = {}
        for name in self._nodes:
            try:
                file = localfiles.read_node(self._run_dir, name)
            except (OSError, ValueError) as error:
                return Unreadable(str(error))
            if file is None:
                nodes[name] = NodeRow(name, NodeCondition.UNKNOWN, "never started")
                continue
            condition, reason = self._condition(file)
            nodes[name] = NodeRow(name, condition, reason)
            emptied = condition is NodeCondition.DOWN and self._is_empty(file)
            for step, row in file.steps.items():
                known.setdefault(step, set()).add(name)
                on = running.setdefault(step, set())
                if row.running and not emptied:
                    on.add(name)
        steps = {step: StepRow(step, bool(on), frozenset(on), frozenset(known[step])) for step, on in running.items()}
        return ClusterView(nodes, steps)

    def launch(self, spec: LaunchSpec) -> None:
        """Write the order, then tell each of its nodes. The first order of a name stands.

        Raises ValueError when a host is none of this cluster's nodes.
        """
        unknown = set(spec.hosts) - set(self._nodes)
        if unknown:
            raise ValueError(f"no such node: {', '.join(sorted(unknown))}")
        localfiles.write_order(self._run_dir, spec)
        for node in dict.fromkeys(spec.hosts):
            self._tell(node, {"op": "run", "epoch": spec.epoch, "name": spec.name})

    def stop(self, name: str, epoch: int) -> None:
        """Ask every node to kill the step. What a dead daemon has left behind is killed here."""
        for node in self._nodes:
            if self._tell(node, {"op": "kill", "epoch": epoch, "name": localfiles.good_name(name)}):
                continue
            file = self._file(node)
            if file is None or file.epoch > epoch or processes.alive(file.pid, file.start_ticks):
                continue
            left = processes.of_node(file.pid, file.start_ticks, node, self._run_dir)
            processes.send((pid for pid in left if processes.holds(pid, {"RELIGHT_STEP": name})), signal.SIGKILL)

    def bar(self, node: str, key: str, why: str = "") -> None:  # noqa: ARG002 - the note is read by nobody but us
        """Leave a note beside the node. Nobody else uses a local cluster, so there is nobody to keep away."""
        with suppress(FileExistsError), open(self._note(node), "x", encoding="utf-8") as file:
            json.dump({"schema": 1, "key": key, "wall": time.time()}, file)

    def unbar(self, node: str, key: str) -> None:
        """Take the note away if it carries this key."""
        try:
            note = json.loads(Path(self._note(node)).read_bytes())
        except (OSError, ValueError):
            return
        if isinstance(note, dict) and note.get("key") == key:
            with suppress(FileNotFoundError):
                os.unlink(self._note(node))

    def probe(self, node: str, deadline_s: float) -> bool:
        """Does the daemon answer a ping within the deadline (seconds)?"""
        until = time.monotonic() + deadline_s
        token = secrets.token_hex(16)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reply:
            reply.bind("")  # the kernel picks a free abstract address, which needs no cleaning up (unix(7))
            if not self._tell(node, {"op": "ping", "token": token}, reply):
                return False
            while (left := until - time.monotonic()) > 0:
                reply.settimeout(left)
                try:
                    if secrets.compare_digest(reply.recv(256), token.encode()):
                        return True
                except TimeoutError:
                    return False
        return False

    def address(self, node: str) -> str:  # noqa: ARG002 - as the port has it
        """All nodes are this machine."""
        return "127.0.0.1"

    def next_job(self, start: str, exclude: Sequence[str], epoch: int) -> None:  # noqa: ARG002 - the port's signature
        """There are no jobs on one machine. Raises OSError."""
        raise OSError(errno.EOPNOTSUPP, "one machine has no jobs: none can follow")

    def release(self, epoch: int) -> None:
        """Shut every node down and see it gone; what does not end by itself, a frozen node too, is killed.

        A node that has obeyed a higher epoch belongs to another controller and is left alone.
        """
        asked: list[NodeFile] = []
        for node in self._nodes:
            file = self._file(node)
            if file is None or file.epoch > epoch:
                continue
            asked.append(file)
            self._tell(node, {"op": "shutdown", "epoch": epoch})
        until = time.monotonic() + self._release_deadline_s
        for file in asked:
            if self._condition(file)[0] is NodeCondition.UP:
                _wait_for(file, until)
            newest = self._file(file.name)
            if newest is None or newest.epoch > epoch:
                continue  # taken over while we waited
            processes.end_node(file.pid, file.start_ticks, file.name, self._run_dir, self._release_deadline_s)
        self._tidy()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back from a thread when a node has changed. One listener a run; a second call takes its place."""
        if self._listener is not None:
            self._listener.close()
        sockets.make_socket_dir(self._run_dir)
        self._listener = _Listener(sockets.cluster_socket(self._sockets), callback)

    def close(self) -> None:
        """Stop listening. The nodes live on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._tidy()

    # --- inside ---

    def _wants_start(self, node: str, *, revive: bool) -> bool:
        file = self._file(node)
        if file is None:
            return True
        if processes.alive(file.pid, file.start_ticks):
            return False
        return revive or file.released or file.boot != localfiles.boot_id()

    def _start(self, node: str) -> subprocess.Popen[bytes]:
        os.makedirs(f"{self._run_dir}/nodes/{node}", mode=0o700, exist_ok=True)
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        command = [self._python, "-I", "-S", "-c", _PROGRAM, root, self._run_dir, node, self._sockets]
        with open(f"{self._run_dir}/nodes/{node}/daemon.log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"RELIGHT_NODE": node, "RELIGHT_RUN_DIR": self._run_dir},
                start_new_session=True,
            )

    def _tidy(self) -> None:
        """Take away the sockets of nodes that are gone, and their directory with the last of them."""
        for node in self._nodes:
            file = self._file(node)
            if file is not None and not processes.alive(file.pid, file.start_ticks):
                for path in (sockets.node_socket, sockets.agent_socket, sockets.agent_lock, sockets.warm_socket):
                    with suppress(FileNotFoundError):
                        os.unlink(path(self._sockets, node))
        with suppress(OSError):  # somebody still has a socket there, or it is gone already
            os.rmdir(self._sockets)

    def _file(self, node: str) -> NodeFile | None:
        try:
            return localfiles.read_node(self._run_dir, node)
        except (OSError, ValueError):
            return None

    def _condition(self, file: NodeFile) -> tuple[NodeCondition, str]:
        if not processes.alive(file.pid, file.start_ticks):
            return NodeCondition.DOWN, "released" if file.released else f"its daemon {file.pid} is gone"
        age = time.monotonic() - file.beat
        if age > self._silent_after_s:
            return NodeCondition.SILENT, f"no beat for {age:.1f} s"
        return NodeCondition.UP, ""

    def _is_empty(self, file: NodeFile) -> bool:
        """Is nothing left of a node whose daemon is dead? Once empty it stays empty, so /proc is read no more."""
        key = (file.name, file.pid, file.start_ticks)
        if key not in self._emptied:
            if processes.of_node(file.pid, file.start_ticks, file.name, self._run_dir):
                return False
            self._emptied.add(key)
        return True

    def _tell(self, node: str, order: dict[str, Any], through: socket.socket | None = None) -> bool:
        """Send one datagram without waiting; False when nobody takes it (dead, or frozen with a full queue)."""
        sender = through or socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sender.setblocking(False)
            sender.sendto(json.dumps(order).encode(), sockets.node_socket(self._sockets, node))
        except OSError:
            return False
        finally:
            if through is None:
                sender.close()
        return True

    def _note(self, node: str) -> str:
        return f"{self._run_dir}/nodes/{localfiles.good_name(node)}/bar.json"


class _Listener:
    """A thread that hears the nodes' announcements and calls back once for all that have come together."""

    def __init__(self, path: str, callback: Callable[[], None]) -> None:
        self._path = path
        self._callback = callback
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="cluster-changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._stop_write, b"!")
        self._thread.join()
        self._socket.close()
        os.close(self._stop_read)
        os.close(self._stop_write)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._socket.fileno(), self._stop_read], [], [])
            if self._stop_read in ready:
                return
            with suppress(BlockingIOError):
                while True:
                    self._socket.recv(16)
            self._callback()


def _wait_for(file: NodeFile, until: float) -> None:
    """Wait for the daemon to end by itself, until the monotonic time `until` at most."""
    if processes.alive(file.pid, file.start_ticks):
        processes.wait_gone((file.pid,), max(0.0, until - time.monotonic()))
