"""A real Slurm of a few nodes on this machine: start, stop, and everything that can happen to a node or to slurmctld.

Needs root. Each node is a process namespace of its own, with its own slurmd: to crash it is to kill the namespace, as
when a server loses power; to hang it is to stop every process in it. All of it lies in one folder, listens on loopback
at ports that were free, and dies with the process that made it, also when that one is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Self

from slurm import processes
from supervisor.bench.slurmbed import config, install, sockets
from supervisor.bench.slurmbed.config import Shape

_PATH: Final = install.PATH
_COMMANDS: Final = ("squeue", "sinfo", "scontrol", "srun", "scancel", "sbatch", "sacct")
_DEADLINE_S: Final = 60.0

_NAMESPACE: Final = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL")
"""Before a command: everything that it starts ends with it, and it ends with us."""

_INIT: Final = (
    'mount -t proc proc /proc && echo up; exec >>"$2" 2>&1; slurmd -D -N "$1" & while :; do sleep 86400 & wait $!; done'
)
"""The first process of a node: it outlives its slurmd and reaps what is left behind."""


class BedError(Exception):
    """Something of the test cluster did not start or did not come; says what, and where its log is."""


class SlurmBed:
    """One cluster. `with SlurmBed(Shape(nodes=5)) as bed:` starts it and leaves nothing running.

    `root`: a directory with another Debian in it (a chroot that has the packages, and this machine's /tmp and /proc),
    so that another version of Slurm can be tried; this machine's by default.
    """

    def __init__(self, shape: Shape = Shape(), root: str = "") -> None:  # noqa: B008  frozen
        self.shape = shape
        self.base = ""
        self._root = root
        self._prefix = ["chroot", root] if root else []
        self._munged: subprocess.Popen[bytes] | None = None
        self._slurmctld: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start everything and wait until every node is idle. Raises BedError, and leaves nothing behind then."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self.stop()

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes."""
        return self.shape.names

    @property
    def env(self) -> dict[str, str]:
        """What a command needs to find this cluster."""
        return {"PATH": f"{self.base}/bin:{_PATH}", "SLURM_CONF": f"{self.base}/etc/slurm.conf", "HOME": self.base}

    def start(self) -> None:
        """Write the files, start munged, slurmctld and the nodes. Raises BedError."""
        self.base = tempfile.mkdtemp(prefix="relight-slurm-")
        self._write()
        self._start_munged()
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.until(lambda: {self.node_states()[name] for name in self.names} == {"idle"}, "all nodes idle")

    def stop(self) -> None:
        """End every process and take the folder away."""
        for name in list(self._nodes):
            self.crash_node(name)
        self.kill_controller()
        if self._munged is not None:
            _end(self._munged)
            self._munged = None
        if self.base:
            shutil.rmtree(self.base, ignore_errors=True)
            self.base = ""

    # --- using it ---

    def run(self, *argv: str, check: bool = True, deadline_s: float = _DEADLINE_S) -> str:
        """Run a command of Slurm and answer what it printed. Raises BedError where it fails."""
        done = subprocess.run(
            argv,
            env=self.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        if check and done.returncode:
            raise BedError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def as_user(self, uid: int, only: Sequence[str] = _COMMANDS) -> dict[str, str]:
        """`env` for whoever runs commands as another user: one without rights, since no account says otherwise.

        `only` some of them: the Python of a run may lie where no other user can start it.
        """
        folder = f"{self.base}/bin-{uid}-{'-'.join(only)}"
        os.makedirs(folder, exist_ok=True)
        self._write_commands(folder, only, f"setpriv --reuid {uid} --regid {uid} --clear-groups")
        return self.env | {"PATH": f"{folder}:{self.env['PATH']}"}

    def submit(self, nodes: int, *options: str, body: str = "exec sleep 100000") -> str:
        """A job that holds `nodes` whole nodes, as `relight sbatch` asks for them; its id once it runs."""
        script = f"{self.base}/job-{time.monotonic_ns()}.sh"
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        shape = (
            "--parsable",
            "--no-kill",
            "--requeue",
            "--exclusive",
            f"--nodes={nodes}",
            f"--gres=gpu:{self.shape.gpus}",
        )
        job = self.run("sbatch", *shape, "--chdir=/", "--output=/dev/null", *options, script).strip()
        self.until(lambda: self.job_state(job) == "RUNNING", f"job {job} running")
        return job

    def job_state(self, job: str) -> str:
        """One word, as squeue says it."""
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def exit_code(self, job: str) -> int:
        """Of its batch script, once it is over."""
        shown = self.run("scontrol", "-o", "show", "job", job)
        return int(shown.partition(" ExitCode=")[2].partition(":")[0])

    def job_nodes(self, job: str) -> list[str]:
        """The nodes that the job holds now."""
        short = self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%N").strip()
        return self.run("scontrol", "show", "hostnames", short).split() if short else []

    def cancel(self, job: str) -> None:
        """End a job and wait until its nodes are free of it, those that can be reached."""
        self.run("scancel", "--full", "--signal=KILL", job, check=False)
        self.run("scancel", job, check=False)
        self.until(lambda: self.job_state(job) not in {"RUNNING", "COMPLETING"}, f"job {job} over")

    def node_states(self) -> dict[str, str]:
        """State with flags, by node."""
        lines = self.run("sinfo", "-h", "-N", "-O", "NodeList:|,StateComplete:|").split()
        return {name: state for name, state, _ in (line.split("|") for line in lines)}

    def until(self, true: Callable[[], bool], what: str, deadline_s: float = _DEADLINE_S) -> None:
        """Wait for something that Slurm does not announce. Raises BedError at the deadline."""
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            with suppress(BedError, subprocess.TimeoutExpired):
                if true():
                    return
            time.sleep(0.05)
        raise BedError(f"not seen in {deadline_s:.0f} s: {what}; {self._last_words()}")

    # --- what can happen to a node ---

    def start_node(self, name: str) -> None:
        """Boot a node; also one that has crashed."""
        log = f"{self.base}/log/node.{name}.out"
        command = [*_NAMESPACE, "--mount", *self._prefix]
        with open(log, "ab") as said:
            self._nodes[name] = node = subprocess.Popen(
                [*command, "sh", "-c", _INIT, "init", name, log],
                env=self.env | {"RELIGHT_SLURMBED": name},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
        assert node.stdout is not None  # noqa: S101  it was asked for
        if node.stdout.readline() != b"up\n":
            with open(log, encoding="utf-8", errors="replace") as said_by_it:
                raise BedError(f"{name} did not start: {said_by_it.read()[-300:].strip()}")

    def crash_node(self, name: str, *, reset: bool = False) -> None:
        """Power loss: slurmd, slurmstepd and every task are gone at once.

        `reset`: whoever is connected to its steps hears of it by a reset and not by an end, as from a node that has
        booted again and knows nothing of its old connections.
        """
        node = self._nodes.pop(name)
        pids = self.node_pids(name, node)
        held = [one for pid in pids if _command(pid) == "slurmstepd" for one in sockets.take(pid)] if reset else []
        processes.send(pids, signal.SIGKILL)
        _end(node)
        if not processes.wait_gone(pids, _DEADLINE_S):
            raise BedError(f"{name}: something did not end")
        for one in held:
            sockets.reset(one)

    def hang_node(self, name: str) -> None:
        """Freeze every process: its ports take connections, and nothing answers."""
        self._signal(name, signal.SIGSTOP, stopped=True)

    def revive_node(self, name: str) -> None:
        """Thaw a node that hangs; boot one that has crashed."""
        if name in self._nodes:
            self._signal(name, signal.SIGCONT, stopped=False)
        else:
            self.start_node(name)

    def node_pids(self, name: str, node: subprocess.Popen[bytes] | None = None) -> list[int]:
        """Every process of a node, its first one among them, as this machine numbers them."""
        outer = (node or self._nodes[name]).pid
        here = _namespace(os.getpid())
        everything = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        mine = {pid: space for pid in everything if (space := _namespace(pid)) not in {None, here}}
        looks = {pid: processes.look(pid) for pid in mine}
        spaces = {mine[pid] for pid, look in looks.items() if look is not None and look.parent == outer}
        return [pid for pid, space in mine.items() if space in spaces and looks[pid] is not None]

    # --- what can happen to slurmctld ---

    def start_controller(self) -> None:
        """Start slurmctld with the state that it had, and wait until it answers."""
        command = [
            *self._prefix,
            "setpriv",
            "--reuid",
            "slurm",
            "--regid",
            "slurm",
            "--clear-groups",
            "--pdeathsig",
            "KILL",
        ]
        self._slurmctld = self._daemon("slurmctld", [*command, "slurmctld", "-D"])
        self.until(lambda: "is UP" in self.run("scontrol", "ping"), "slurmctld up")

    def stop_controller(self) -> None:
        """An orderly end of slurmctld: it saves its state."""
        if self._slurmctld is not None:
            self.run("scontrol", "shutdown", "slurmctld")
            self._slurmctld.wait(_DEADLINE_S)
            self._slurmctld = None

    def kill_controller(self) -> None:
        """SIGKILL slurmctld and its helper; what it had not saved is lost."""
        if self._slurmctld is not None:
            _end(self._slurmctld)
            self._slurmctld = None

    # --- inside ---

    def _write(self) -> None:
        base, shape = self.base, self.shape
        os.chmod(base, 0o755)  # munge and slurm are other users  # noqa: S103
        for folder in ("etc", "bin", "run", "log", "state", "munge", "dev", *(f"spool/{name}" for name in self.names)):
            os.makedirs(f"{base}/{folder}", mode=0o755)
        for number in range(shape.gpus):
            os.mknod(f"{base}/dev/nvidia{number}", 0o020666, os.makedev(1, 3))
            os.chmod(f"{base}/dev/nvidia{number}", 0o666)  # noqa: S103
        controller, *nodes = _free_ports(1 + len(shape.configured))
        files = {"slurm.conf": config.slurm_conf(base, socket.gethostname().split(".")[0], shape, controller, nodes)}
        files["gres.conf"] = config.gres_conf(base, shape)
        if shape.switches:
            files["topology.conf"] = config.topology_conf(shape)
        if self._version() >= (23, 0):
            files["cgroup.conf"] = "CgroupPlugin=disabled\n"  # else slurmd wants a mount of control groups
        for name, text in files.items():
            with open(f"{base}/etc/{name}", "w", encoding="ascii") as file:
                file.write(text)
        if self._root:
            self._write_commands(f"{base}/bin", _COMMANDS)
        with open(f"{base}/munge/munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o400)) as file:
            file.write(os.urandom(1024))
        os.chmod(f"{base}/munge", 0o711)  # noqa: S103
        self._setup("chown", "-R", "munge:munge", f"{base}/munge")
        self._setup("chown", "slurm:slurm", f"{base}/state", f"{base}/run", f"{base}/log")

    def _write_commands(self, folder: str, commands: Sequence[str], change: str = "") -> None:
        """Slurm's commands as they are in the other Debian; a job runs in there already, and its root names itself."""
        enter = f"[ / -ef {self._root} ] || enter='chroot {self._root}'\n" if self._root else ""
        for command in commands:
            with open(f"{folder}/{command}", "w", encoding="ascii") as file:
                file.write(f'#!/bin/sh\nenter=\n{enter}exec $enter {change} /usr/bin/env PATH={_PATH} {command} "$@"\n')
            os.chmod(f"{folder}/{command}", 0o755)  # noqa: S103

    def _start_munged(self) -> None:
        where = f"{self.base}/munge"
        files = [f"--{what}={where}/{name}" for what, name in _MUNGE_FILES.items()]
        command = [
            *self._prefix,
            "setpriv",
            "--reuid",
            "munge",
            "--regid",
            "munge",
            "--clear-groups",
            "--pdeathsig",
            "KILL",
        ]
        self._munged = self._daemon("munged", [*command, "munged", "--foreground", "--num-threads=2", *files])
        self.until(lambda: os.path.exists(f"{where}/munge.socket"), "munged up")

    def _last_words(self) -> str:
        """The end of what slurmctld has said: the folder is gone before anybody can look."""
        try:
            with open(f"{self.base}/log/slurmctld.log", encoding="utf-8", errors="replace") as file:
                return f"slurmctld said: {' / '.join(file.read().splitlines()[-5:])}"
        except OSError as error:
            return f"slurmctld said nothing ({error})"

    def _daemon(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with open(f"{self.base}/log/{name}.out", "ab") as log:
            return subprocess.Popen(
                command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _setup(self, *argv: str) -> str:
        env: Mapping[str, str] = {"PATH": _PATH}
        return subprocess.run([*self._prefix, *argv], env=env, check=True, capture_output=True, text=True).stdout

    def _version(self) -> tuple[int, int]:
        major, minor, *_ = self._setup("slurmd", "-V").split()[1].split(".")
        return int(major), int(minor)

    def _signal(self, name: str, number: signal.Signals, *, stopped: bool) -> None:
        """Again until it is so everywhere: a process may have forked between the look and the signal."""
        while True:
            found = [look for pid in self.node_pids(name) if (look := processes.look(pid)) is not None]
            todo = [look.pid for look in found if (look.state == "T") != stopped]
            if not todo:
                return
            processes.send(todo, number)
            os.sched_yield()


_MUNGE_FILES: Final = {
    "key-file": "munge.key",
    "socket": "munge.socket",
    "pid-file": "munged.pid",
    "log-file": "munged.log",
    "seed-file": "seed",
}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a daemon with its session, and reap it."""
    pids = [one.pid for one in processes.members(process.pid)]
    processes.send(pids, signal.SIGKILL)
    process.wait(_DEADLINE_S)
    if process.stdout is not None:
        process.stdout.close()
    processes.wait_gone(pids, _DEADLINE_S)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _command(pid: int) -> str:
    """The name of a process; slurmstepd writes its step behind its own."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on; all held at once, so that none comes twice."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
