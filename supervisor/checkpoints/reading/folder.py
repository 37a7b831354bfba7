"""The folder of a save from outside: which files, links and modes, and where the save is below a given path."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.checkpoints.posix import Stamp, read_bounded, stamp_of
from supervisor.checkpoints.reading.findings import Collected, Finding
from supervisor.checkpoints.sidecars import FOLDER, rank_of

TRACKER = "latest_checkpointed_iteration.txt"
NETWORK_LAG_S = 120.0
"""A network file system may show a name or a size that late (NFS keeps attributes for up to 60 s; shared facts)."""
_NETWORK = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|fuse|weka|cifs|smb|panfs|9p|afs|gluster|orange|vast|daos")
_NUMBERED = re.compile(r"(?:iter_|step[-_]?|checkpoint-|global_step)([0-9]{1,15})")
_ITERATION = re.compile(r"iter_([0-9]{7,15})")


@dataclass(frozen=True, slots=True)
class Look:
    """Stamps of the plain files by name, what was found, and the folder's own stamp."""

    files: Mapping[str, Stamp]
    findings: tuple[Finding, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by name."""
        return {name: stamp.size for name, stamp in self.files.items()}


def look_at(folder: str) -> Look:
    """Look at every entry without following a link. Raises OSError when the folder can't be seen."""
    found = Collected()
    files: dict[str, Stamp] = {}
    if not os.stat(folder).st_mode & stat.S_IRUSR:
        found.add("UNREADABLE", "", "the folder's mode forbids its owner to read it")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        try:
            seen = os.lstat(path)
        except OSError as error:
            found.add("UNREADABLE", name, error.strerror or str(error))
            continue
        if stat.S_ISLNK(seen.st_mode):
            _judge_link(path, name, found)
        elif stat.S_ISREG(seen.st_mode):
            files[name] = stamp_of(seen)
            # root reads a file of any mode; whoever restores may not be root.
            if not seen.st_mode & stat.S_IRUSR:
                found.add("UNREADABLE", name, f"its mode {stat.S_IMODE(seen.st_mode):03o} forbids its owner to read it")
        elif stat.S_ISDIR(seen.st_mode):
            _judge_folder(path, name, found)
        else:
            found.add("NOT_A_FILE", name, "a pipe, socket or device")
    return Look(files, found.all())


def _judge_link(path: str, name: str, found: Collected) -> None:
    try:
        os.stat(path)
    except FileNotFoundError:
        found.add("SYMLINK", name, "a link that leads nowhere")
    except OSError as error:
        code = "LINK_LOOP" if error.errno == errno.ELOOP else "UNREADABLE"
        found.add(code, name, error.strerror or str(error))
    else:
        found.add("SYMLINK", name, "a link; what it leads to may change apart from the save")


def _judge_folder(path: str, name: str, found: Collected) -> None:
    if name != FOLDER:
        shard = name.startswith((".metadata", "__")) or name.endswith(".safetensors")
        found.add("NOT_A_FILE" if shard else "OTHER_FILE", name, "a folder")
        return
    try:
        entries = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in os.scandir(path)]
    except OSError as error:
        found.add("UNREADABLE", name, error.strerror or str(error))
        return
    for entry, mode in sorted(entries):
        inside = f"{name}/{entry}"
        if stat.S_ISLNK(mode):
            found.add("SYMLINK", inside, "a link")
        elif not stat.S_ISREG(mode):
            found.add("NOT_A_FILE", inside, "no plain file")
        elif rank_of(entry) is None:
            found.add("LEFTOVER" if ".tmp" in entry else "OTHER_FILE", inside, "no sidecar of a rank")


@dataclass(frozen=True, slots=True)
class Located:
    """The save's own folder, what its name says of the iteration, and what was noted on the way to it."""

    folder: str
    iteration: int | None
    findings: tuple[Finding, ...] = ()


class NoCheckpointError(Exception):
    """There is no checkpoint at this path. The text says what was looked for."""


def locate(path: str) -> Located:
    """The save at `path`, or below it: what the tracker names if that is there, else the newest.

    Raises NoCheckpointError, or OSError when the path can't be seen.
    """
    folder = os.path.realpath(path)
    names = os.listdir(folder)
    if _ITERATION.fullmatch(os.path.basename(folder)) or any(map(_is_of_a_save, names)):
        return Located(folder, iteration_of(folder))
    saves = sorted((int(match[1]), match[0]) for match in map(_NUMBERED.fullmatch, names) if match)
    saves = [save for save in saves if os.path.isdir(os.path.join(folder, save[1]))]
    if "release" in names and not saves:
        saves = [(0, "release")]
    if not saves and {"saves", "seals"} <= set(names):
        raise NoCheckpointError(f"it is a store of relight, which holds many. Give one of its saves: {_one_of(folder)}")
    if not saves:
        raise NoCheckpointError("no .metadata, no safetensors, and no folder iter_NNNNNNN below it")
    found = Collected()
    tracked = _tracked(folder, names, found)
    number, name = saves[-1]
    if tracked is not None:
        named = [save for save in saves if save[0] == tracked]
        if named:
            number, name = named[-1]
        else:
            found.add("TRACKER", TRACKER, f"it names {tracked}, which is not there; {name} was looked at")
    newer = [save for _, save in saves if _ > number]
    if newer:
        found.add("NEWER_SAVE", newer[-1], f"{name} was looked at, which the tracker names")
    chosen = os.path.realpath(os.path.join(folder, name))
    return Located(chosen, iteration_of(chosen), found.all())


def _one_of(store: str) -> str:
    """The newest save below a store's own folder; where there is none, how one is named."""
    below = os.path.join(store, "saves")
    found = [
        (attempt, name)
        for attempt in _folders(below)
        for name in _folders(os.path.join(below, attempt))
        if _ITERATION.fullmatch(name)
    ]
    return os.path.join(below, *max(found, default=("aNNNN", "iter_NNNNNNN")))


def _folders(path: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def iteration_of(folder: str) -> int | None:
    """The iteration in the name of a folder `iter_NNNNNNN`; None for another name."""
    match = _ITERATION.fullmatch(os.path.basename(folder))
    return int(match[1]) if match else None


def _is_of_a_save(name: str) -> bool:
    return name.endswith((".metadata", ".distcp", ".safetensors", ".metadata.tmp")) or name == "metadata.json"


def _tracked(folder: str, names: list[str], found: Collected) -> int | None:
    if TRACKER not in names:
        return None
    try:
        text = read_bounded(os.path.join(folder, TRACKER), 64).strip()
    except OSError as error:
        found.add("TRACKER", TRACKER, error.strerror or str(error))
        return None
    if text.isdigit():
        return int(text)
    if text != b"release":
        found.add("TRACKER", TRACKER, f"it says {text[:20].decode('ascii', 'replace')!r}, no iteration")
    return None


def lag_of(folder: str, mounts: str = "/proc/self/mounts") -> float:
    """Seconds after which a name or a size that is not there will not come; 0 on a local file system.

    A kind of file system that can't be told is taken for one of the network.
    """
    try:
        lines = read_text(mounts).splitlines()
    except OSError:
        return NETWORK_LAG_S
    best, kind = "", "fuse"
    for line in lines:
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = parts[1].encode().decode("unicode_escape")
        if len(point) >= len(best) and (folder + "/").startswith(point.rstrip("/") + "/"):
            best, kind = point, parts[2]
    return NETWORK_LAG_S if _NETWORK.search(kind) and not kind.startswith("fuse.fuse-overlayfs") else 0.0


def read_text(path: str) -> str:
    """A text file of the system whole. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
