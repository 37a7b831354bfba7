"""What `relight doctor` looks at: this installation and this machine. Every trial cleans up after itself."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from threading import Event
from typing import Final

from slurm.sockets import LONGEST_PATH, agent_socket, make_socket_dir, node_socket, socket_dir, warm_socket
from supervisor.agent.stacks import find_py_spy
from supervisor.doctor.machine import (
    FolderSeen,
    Machine,
    SettingsSeen,
    SlurmSeen,
    SocketsSeen,
    StacksSeen,
)
from supervisor.durable import create_whole, replace_whole
from supervisor.errors import UserError
from supervisor.observe.installed import look_at_installation, version_of
from supervisor.observe.optional import look_at_nvrx, look_at_pyslurm
from supervisor.observe.programs import look_at_programs
from supervisor.prepare import examine
from supervisor.profiles import load_profile
from supervisor.settings import Settings, read_settings
from supervisor.telling import targets

SLURM_COMMANDS: Final = ("squeue", "sinfo", "scontrol", "srun", "scancel", "sbatch")
RACERS: Final = 4
ROUNDS: Final = 10
TRIAL_S: Final = 10.0
"""So long may py-spy take on one idle child, or srun for its version."""
_CHILD: Final = "import sys\nprint('up', flush=True)\nsys.stdin.read()\n"


def look(config: str, run_dir: str) -> Machine:
    """Look at everything. `config`: a path, or "" for none; `run_dir` need not exist. Takes a second or two."""
    seen, settings = look_at_settings(config)
    root = os.path.abspath(run_dir or os.path.join("relight-runs", settings.run.name))
    return Machine(
        python=sys.version_info[:3],
        installation=look_at_installation(),
        settings=seen,
        folder=look_at_folder(root),
        sockets=look_at_sockets(root, max(settings.nodes, key=len)),
        stacks=look_at_stacks(find_py_spy()),
        open_files=_open_files(),
        clock=_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        torch=version_of("torch") if find_spec("torch") else None,
        nvrx=look_at_nvrx(settings.health.nvrx_python, os.path.dirname(os.path.abspath(config or "relight.toml"))),
        pyslurm=look_at_pyslurm(version_of("pyslurm")),
        slurm=replace(look_at_slurm(), wanted=_wants_slurm(settings)),
        programs=look_at_programs(settings, os.path.dirname(os.path.abspath(config or "relight.toml"))),
    )


def look_at_settings(config: str) -> tuple[SettingsSeen, Settings]:
    """relight.toml and its profile; where they can't be read, the defaults stand in for the other checks."""
    settings, trouble = Settings(), ""
    try:
        settings = read_settings(config) if config else settings
        load_profile(settings.run.profile)
        examine(settings, config)
        targets.must_be_understood(targets.gather(settings.notify, config or None))
    except UserError as error:
        trouble = str(error)
    run = settings.run
    return SettingsSeen(config, trouble, run.profile, len(settings.nodes), run.warm), settings


def _line(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline(256).strip() or None
    except OSError:
        return None


def _open_files() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


# --- the run directory ---------------------------------------------------------------------------------------------

Write = Callable[[str, bytes], object]


def look_at_folder(root: str, create: Write = create_whole, replace: Write = replace_whole) -> FolderSeen:
    """Try links and renames beside where the run would lie, with the functions that the run itself uses."""
    there = root
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        with tempfile.TemporaryDirectory(prefix=".relight-doctor-", dir=there) as scratch:
            trouble = try_link(scratch, create) or try_rename(scratch, replace)
    except OSError as error:
        trouble = f"{error.strerror}: {error.filename or there}"
    try:
        room = os.statvfs(there)
    except OSError:
        return FolderSeen(root, there, trouble, None, None)
    return FolderSeen(root, there, trouble, room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None)


def try_link(folder: str, create: Write) -> str:
    """Several at once want the same name; exactly one may get it. "" or what was wrong. Raises OSError."""
    with ThreadPoolExecutor(RACERS) as pool:
        for turn in range(ROUNDS):
            path = os.path.join(folder, f"link-{turn}")
            jobs = [pool.submit(create, path, b"%d" % racer * 512) for racer in range(RACERS)]
            winners = [racer for racer, job in enumerate(jobs) if job.result()]
            if len(winners) != 1:
                return f"{len(winners)} of {RACERS} got the same name by an exclusive link"
            with open(path, "rb") as file:
                if file.read() != b"%d" % winners[0] * 512:
                    return "a file made by an exclusive link holds what another wrote"
    return ""


def try_rename(folder: str, replace: Write) -> str:
    """Whoever reads while a file is replaced sees the old one or the new one, whole. "" or what was wrong. Raises OSError."""
    path = os.path.join(folder, "rename")
    wholes = {b"%d" % n * 65_536 for n in range(2)}
    replace(path, min(wholes))
    over = Event()

    def read() -> str:
        while not over.is_set():
            try:
                with open(path, "rb") as file:
                    if file.read() not in wholes:
                        return "a reader saw half of a file that was being replaced"
            except FileNotFoundError:
                return "a reader found no file while it was being replaced"
        return ""

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for turn in range(ROUNDS):
                with open(path, "rb") as before:
                    replace(path, b"%d" % (turn % 2) * 65_536)
                    if before.read() not in wholes:
                        return "a file changed under a reader that had it open"
        finally:
            over.set()
        return reader.result()


# --- sockets, stacks, Slurm ----------------------------------------------------------------------------------------


def look_at_sockets(root: str, longest_node: str) -> SocketsSeen:
    """Bind a socket where those of the run would lie; the run's own directory is checked where it is there already."""
    folder = socket_dir(root)
    longest = max(len(os.fsencode(path(folder, longest_node))) for path in (agent_socket, node_socket, warm_socket))
    try:
        if os.path.lexists(folder):
            make_socket_dir(root)  # it is there: this only proves that nobody else can enter it
        with (
            tempfile.TemporaryDirectory(prefix="relight-doctor-", dir=os.path.dirname(folder)) as scratch,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end,
        ):
            end.bind(os.path.join(scratch, "s"))
    except OSError as error:
        return SocketsSeen(folder, longest, LONGEST_PATH, f"{folder}: {error.strerror or error}")
    return SocketsSeen(folder, longest, LONGEST_PATH, "")


def look_at_stacks(py_spy: str | None) -> StacksSeen:
    """Can py-spy read a process that is not its child? Yama's ptrace_scope 1 forbids that to all but root."""
    scope = _line("/proc/sys/kernel/yama/ptrace_scope")
    try:
        trouble = None if py_spy is None else try_py_spy(py_spy)
    except OSError as error:  # of the child that was to be looked at, such as an interpreter in another user's home
        trouble = f"{error.filename or sys.executable}: {error.strerror}"
    return StacksSeen(py_spy, trouble, int(scope) if scope and scope.isdigit() else None)


def try_py_spy(py_spy: str) -> str:
    """Dump a child's stack: "" or what was wrong."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None  # noqa: S101 - it was asked for
        child.stdout.readline()
        command = [py_spy, "dump", "--pid", str(child.pid)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TRIAL_S, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return f"no stack after {TRIAL_S:.0f} s"
        except OSError as error:
            return error.strerror or str(error)
        finally:
            child.kill()
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").split("\n")
        return " / ".join(line.strip() for line in said if line.strip())[:200] or f"exit {done.returncode}"
    return "" if b"<module>" in done.stdout else "its dump shows no stack"


def look_at_slurm() -> SlurmSeen:
    """Which commands are in PATH, and their version; `srun --version` asks no controller."""
    found = tuple((name, shutil.which(name)) for name in SLURM_COMMANDS)
    srun = dict(found)["srun"]
    if srun is None:
        return SlurmSeen(found, None)
    try:
        done = subprocess.run([srun, "--version"], capture_output=True, timeout=TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return SlurmSeen(found, None)
    told, said = (text.decode("utf-8", "replace").strip() for text in (done.stdout, done.stderr))
    return SlurmSeen(found, told[:64] or None, trouble=said[-500:])


def _wants_slurm(settings: Settings) -> str:
    if settings.cluster.kind == "slurm":
        return 'cluster.kind = "slurm"'
    inside = settings.cluster.kind == "auto" and os.environ.get("SLURM_JOB_ID")
    return f"job {inside}" if inside else ""
