"""Is this installation and this machine fit? Judged from what was seen (`observe/machine.py`). Pure: facts in, verdicts out.

What is not there and not needed is ok, and said; what could not be looked at is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from supervisor.doctor.verdict import Check
from supervisor.telling.say import count

OURS: Final = "relight"
PYTHON: Final = (3, 11)
TORCH: Final = (2, 6)
"""As pyproject.toml asks for them."""
NVRX: Final = "0.7.0"
"""The version whose answers `agent/health/nvrx_child.py` was written for and tried with."""
SLURMS: Final = ((22, 5), (24, 11), (25, 11), (26, 5))
"""What the port was tried on (docs/slurm.md)."""
_NO_CONF: Final = ("establish a configuration source", "process configuration file")
"""What Slurm's commands say before they give up for want of a slurm.conf (22.05)."""
ROOM_BYTES: Final = 1 << 30
"""The ends of the logs of 5,120 ranks (64 KiB each) are 0.3 GiB an incident; saves come on top."""
ROOM_FILES: Final = 100_000
"""Exit records, pids, logs and stacks of 5,120 ranks are about 20,000 files an attempt."""
SPARE_FILES: Final = 256
"""Open files of the controller beside one connection a node."""
FAST_CLOCKS: Final = frozenset(
    {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen", "timebase", "tod"}
)
"""Clock sources that are read without a system call or a slow bus."""


@dataclass(frozen=True, slots=True)
class Package:
    """An import name: the folder that it is imported from (None: nowhere), and the distributions that claim it."""

    name: str
    folder: str | None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installation:
    """`home` is the folder that holds the packages of the code that runs now; `version` that of the distribution."""

    home: str
    version: str | None
    packages: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class SettingsSeen:
    """relight.toml and the profile it names; `trouble` is one line, empty when both can be read. `path` "": none."""

    path: str
    trouble: str
    profile: str
    nodes: int
    warm: bool


@dataclass(frozen=True, slots=True)
class ProgramSeen:
    """A program that a setting names; `trouble` is empty when it is there and may be started."""

    setting: str
    name: str
    trouble: str


@dataclass(frozen=True, slots=True)
class FolderSeen:
    """The run directory, or the nearest folder above it that exists. `trouble` is empty when all trials held."""

    path: str
    tried_in: str
    trouble: str
    free_bytes: int | None
    free_files: int | None  # None: the file system does not count them


@dataclass(frozen=True, slots=True)
class SocketsSeen:
    """Where the unix sockets would lie, the bytes of the longest path among them and its limit, and what a trial met."""

    folder: str
    longest: int
    limit: int
    trouble: str


@dataclass(frozen=True, slots=True)
class StacksSeen:
    """py-spy: where, and what it met when it read a child of ours; None: not tried. `scope`: kernel.yama.ptrace_scope."""

    path: str | None
    trouble: str | None
    scope: int | None


@dataclass(frozen=True, slots=True)
class SlurmSeen:
    """The commands that were looked for, where they are, and what `srun --version` says.

    `wanted`: what makes this a matter of Slurm, such as `cluster.kind = "slurm"`; "" where nothing does. `trouble`: what
    srun said instead of a version.
    """

    commands: tuple[tuple[str, str | None], ...]
    version: str | None
    wanted: str = ""
    trouble: str = ""

    @property
    def alone(self) -> bool:
        """Are the commands here without a cluster, as on a machine that just has the package?"""
        return self.version is None and any(word in self.trouble for word in _NO_CONF)

    @property
    def usable(self) -> bool:
        """Can a cluster be asked?"""
        return not self.alone and all(path is not None for _, path in self.commands)


@dataclass(frozen=True, slots=True)
class PyslurmSeen:
    """Its version (None: not there), and what importing it in a child met: "" nothing, None not tried."""

    version: str | None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class NvrxSeen:
    """Its version (None: not there). `python`: the interpreter that health.nvrx_python names, "" for our own."""

    version: str | None
    python: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """All that was seen. Versions are as their distributions tell them; None: not there."""

    python: tuple[int, int, int]
    installation: Installation
    settings: SettingsSeen
    folder: FolderSeen
    sockets: SocketsSeen
    stacks: StacksSeen
    open_files: int | None  # the soft limit; None: no limit
    clock: str | None
    torch: str | None
    nvrx: NvrxSeen
    pyslurm: PyslurmSeen
    slurm: SlurmSeen
    programs: tuple[ProgramSeen, ...] = ()


def examine(machine: Machine) -> tuple[Check, ...]:
    """Every check, in order."""
    return tuple(check(machine) for check in CHECKS)


def _version(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version: 2.13.0+cpu is (2, 13)."""
    found = re.search(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def python(machine: Machine) -> Check:
    """3.11 or later."""
    seen = ".".join(map(str, machine.python))
    good = machine.python[:2] >= PYTHON
    return Check("python", "ok", seen) if good else Check("python", "bad", seen, "Python 3.11 or later")


def packages(machine: Machine) -> Check:
    """Are the packages imported ours?"""
    return judge_installation(machine.installation)


def judge_installation(seen: Installation) -> Check:
    """PyPI has another `supervisor` (Supervisord), and others may come. When this fails, no other check can be trusted."""
    wrong, foreign = [], set()
    for package in seen.packages:
        if package.folder != f"{seen.home}/{package.name}":
            wrong.append(f"{package.name} comes from {package.folder or 'nowhere'}")
        others = sorted(set(package.owners) - {OURS})
        foreign |= set(others)
        wrong += [f"{package.name} belongs to the distribution {other} too" for other in others]
    if wrong:
        remedy = f"pip uninstall {' '.join(sorted(foreign))}, then install relight again" if foreign else ""
        return Check("packages", "bad", "; ".join(wrong), remedy or f"all of them from {seen.home}")
    version = f"relight {seen.version}" if seen.version else "relight, not installed"
    return Check("packages", "ok", f"{version}: {', '.join(p.name for p in seen.packages)} from {seen.home}")


def settings(machine: Machine) -> Check:
    """Can relight.toml and its profile be read?"""
    seen = machine.settings
    if seen.trouble:
        return Check("settings", "bad", seen.trouble, "settings and a profile that can be read")
    return Check("settings", "ok", f"{seen.path or 'no relight.toml: defaults'}; profile {seen.profile}")


def programs(machine: Machine) -> Check:
    """Can what notices and health checks are to start be started here?"""
    wrong = [one for one in machine.programs if one.trouble]
    if wrong:
        text = "; ".join(f'{one.setting} = "{one.name}": {one.trouble}' for one in wrong)
        right = (
            "programs that are there and executable (a path counts from the folder of relight.toml), or leave them out"
        )
        return Check("programs", "bad", text, right)
    return Check("programs", "ok", ", ".join(one.name for one in machine.programs) or "the settings name none")


def run_directory(machine: Machine) -> Check:
    """Do exclusive links and replacing renames hold there? Lease, journal and seals stand on them."""
    seen = machine.folder
    where = seen.path if seen.path == seen.tried_in else f"{seen.path} (tried in {seen.tried_in})"
    if seen.trouble:
        right = "a folder of yours on a file system where link(2) excludes and rename(2) replaces at once"
        return Check("run-directory", "bad", f"{where}: {seen.trouble}", right)
    if seen.tried_in == "/":
        return Check("run-directory", "warn", f"{where}: none of its folders is here", "is its file system mounted?")
    return Check("run-directory", "ok", f"{where}: exclusive link and atomic rename hold on this machine")


def room(machine: Machine) -> Check:
    """Free bytes and files where the run directory lies."""
    seen = machine.folder
    if seen.free_bytes is None:
        return Check("room", "unknown", f"{seen.tried_in}: free room can't be read")
    files = "" if seen.free_files is None else f", {seen.free_files:,} files"
    text = f"{seen.free_bytes / 2**30:,.1f} GiB{files} free in {seen.tried_in}"
    if seen.free_bytes < ROOM_BYTES:
        return Check("room", "bad", text, "1 GiB for journal and evidence; saves need theirs on top")
    if seen.free_files is not None and seen.free_files < ROOM_FILES:
        return Check("room", "bad", text, f"{ROOM_FILES:,} files")
    return Check("room", "ok", text)


def sockets(machine: Machine) -> Check:
    """Can unix sockets be made where they belong, and are their paths short enough?"""
    seen = machine.sockets
    if seen.trouble:
        return Check("sockets", "bad", seen.trouble, "a runtime directory (XDG_RUNTIME_DIR or /tmp) that you can write")
    if seen.longest > seen.limit:
        text = f"{seen.folder}: a socket's path there has {seen.longest} bytes"
        return Check("sockets", "bad", text, f"{seen.limit} bytes at most: shorter names of nodes")
    return Check("sockets", "ok", f"{seen.folder}: the longest path has {seen.longest} of {seen.limit} bytes")


def open_files(machine: Machine) -> Check:
    """One connection a node, and some for everything else."""
    need = machine.settings.nodes + SPARE_FILES
    if machine.open_files is None or machine.open_files >= need:
        limit = "no limit" if machine.open_files is None else f"{machine.open_files:,}"
        return Check("open-files", "ok", f"{limit}; {need:,} are needed for {count(machine.settings.nodes, 'node')}")
    return Check("open-files", "bad", f"{machine.open_files:,} at most", f"ulimit -n {need}")


def stacks(machine: Machine) -> Check:
    """Is the evidence of a stall within reach? Tried on a child that is no child of py-spy, as a rank is none."""
    seen = machine.stacks
    if seen.path is None:
        return Check("py-spy", "bad", "not found", "pip install py-spy; without it a stall leaves no stacks")
    if seen.trouble is None:
        return Check("py-spy", "unknown", f"{seen.path}: not tried")
    scope = "" if seen.scope is None else f"; kernel.yama.ptrace_scope = {seen.scope}"
    if seen.trouble:
        right = "kernel.yama.ptrace_scope = 0, or CAP_SYS_PTRACE for py-spy" if seen.scope else "py-spy dump works"
        return Check("py-spy", "bad", f"{seen.path}: {seen.trouble}{scope}", right)
    return Check("py-spy", "ok", f"{seen.path}: read the stack of a process of ours{scope}")


def clock(machine: Machine) -> Check:
    """A slow clock source says that the kernel distrusts the processor's own."""
    if machine.clock is None:
        return Check("clock", "unknown", "the clock source can't be read")
    if machine.clock in FAST_CLOCKS:
        return Check("clock", "ok", machine.clock)
    right = f"one of {', '.join(sorted(FAST_CLOCKS))}; why the kernel left it: dmesg | grep -i clocksource"
    return Check("clock", "bad", machine.clock, right)


def torch(machine: Machine) -> Check:
    """Wanted only by the reference trainer and by warm ranks, here; the training command may have its own."""
    wanted, version = machine.settings.warm, _version(machine.torch)
    right = "pip install 'relight[train]', with the training command's own Python"
    if machine.torch is None:
        if wanted:
            return Check("torch", "bad", "not found, and run.warm = true asks for it", right)
        return Check("torch", "ok", "not found; only the reference trainer and warm ranks need it here")
    if version is None:
        return Check("torch", "unknown", f"{machine.torch}: no version can be read from that", right)
    if version < TORCH:
        return Check("torch", "bad" if wanted else "warn", f"{machine.torch}, not tried below 2.6", right)
    return Check("torch", "ok", f"{machine.torch} (found, not imported)")


def nvrx(machine: Machine) -> Check:
    """Optional; the agents' checks read its results, which may look different in another version."""
    seen = machine.nvrx
    if seen.trouble:
        right = "a Python that has nvidia-resiliency-ext, or leave health.nvrx_python out: its checks would be unknown"
        return Check("nvrx", "bad", f"{seen.python}: {seen.trouble}", right)
    if seen.version is None:
        return Check("nvrx", "ok", "nvidia-resiliency-ext is not there; it is optional")
    where = f" in {seen.python}" if seen.python else ""
    if seen.version != NVRX:
        text = f"{seen.version}{where}, not tried: {NVRX} was"
        return Check("nvrx", "warn", text, f"nvidia-resiliency-ext {NVRX}, or see that its checks answer")
    return Check("nvrx", "ok", f"{seen.version}{where}")


def slurm(machine: Machine) -> Check:
    """All commands or none: half of them is a broken installation."""
    seen = machine.slurm
    missing = [name for name, path in seen.commands if path is None]
    if len(missing) == len(seen.commands) and not seen.wanted:
        return Check("slurm", "ok", "no Slurm commands here; a run on one machine needs none")
    if missing:
        text = f"missing: {', '.join(missing)}" + (f"; {seen.wanted} asks for them" if seen.wanted else "")
        return Check("slurm", "bad", text, "all of Slurm's commands in PATH, on a login node and on every node")
    if seen.alone:
        asked = f"; {seen.wanted} asks for one" if seen.wanted else ""
        text = f"the commands are here, and no cluster: no slurm.conf is found{asked}"
        right = "SLURM_CONF, or /etc/slurm/slurm.conf, where this is a machine of a cluster; a run on one machine needs none"
        return Check("slurm", "bad" if seen.wanted else "warn", text, right)
    if seen.version is None:
        return Check(
            "slurm", "unknown", "srun --version gives no version", "srun --version, by hand: what does it say?"
        )
    version = _version(seen.version)
    if version not in SLURMS:
        tried = ", ".join(f"{year}.{month:02d}" for year, month in SLURMS)
        return Check(
            "slurm", "warn", f"{seen.version}, not tried", f"relight was tried on {tried}: try a small job first"
        )
    return Check("slurm", "ok", seen.version)


def pyslurm(machine: Machine) -> Check:
    """Optional; where it is there, it must be built for the Slurm that is there. It is not used where it does not match."""
    seen = machine.pyslurm
    if seen.version is None:
        return Check("pyslurm", "ok", "not there; it is optional, Slurm's commands are the base")
    ours, theirs = _version(seen.version), _version(machine.slurm.version)
    if ours is None or theirs is None:
        right = "nothing, if Slurm's commands do: they are the base"
        return Check("pyslurm", "unknown", f"{seen.version}; no Slurm version to compare with", right)
    if ours != theirs:
        right = f"pyslurm {theirs[0]}.{theirs[1]:02d}, or none: Slurm's commands are the base"
        return Check("pyslurm", "warn", f"{seen.version} beside {machine.slurm.version}", right)
    if seen.trouble:
        right = "a pyslurm that was built against this libslurm, or none: Slurm's commands are the base"
        return Check("pyslurm", "warn", f"{seen.version} can't be imported: {seen.trouble}", right)
    if seen.trouble is None:
        return Check("pyslurm", "unknown", f"{seen.version}: importing it was not tried")
    return Check("pyslurm", "ok", f"{seen.version}, as Slurm; a process of its own can import it")


CHECKS: Final[tuple[Callable[[Machine], Check], ...]] = (
    python,
    packages,
    settings,
    programs,
    run_directory,
    room,
    sockets,
    open_files,
    stacks,
    clock,
    torch,
    nvrx,
    slurm,
    pyslurm,
)
