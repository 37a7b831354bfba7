"""One look at a save's folder: which files, which sidecars, and what must not be there."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.checkpoints.posix import Stamp, stamp_of
from supervisor.checkpoints.sidecars import FOLDER


@dataclass(frozen=True, slots=True)
class Survey:
    """Stamps by name of the data files; names of what lies in `relight/`; entries that a save must not have."""

    files: Mapping[str, Stamp]
    sidecars: tuple[str, ...]
    problems: tuple[str, ...]


def survey(save: str) -> Survey:
    """Look at every entry without following a link. Raises OSError when any of it can't be seen."""
    files: dict[str, Stamp] = {}
    sidecars: list[str] = []
    problems: list[str] = []
    for name in sorted(os.listdir(save)):
        path = os.path.join(save, name)
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode):
            files[name] = stamp_of(found)
        elif stat.S_ISDIR(found.st_mode) and name == FOLDER:
            sidecars = os.listdir(path)
        else:
            problems.append(refused_entry(path, found.st_mode))
    return Survey(files, tuple(sorted(sidecars)), tuple(problems))


def refused_entry(path: str, mode: int) -> str:
    """Say what an entry is that should be a plain file. Raises OSError for a symlink that can't be resolved.

    A loop (ELOOP) or a target behind a closed door is something that can't be judged; a link that leads somewhere, or
    nowhere, is simply not what the ranks wrote.
    """
    name = os.path.basename(path)
    if stat.S_ISLNK(mode):
        try:
            os.stat(path)
        except FileNotFoundError:
            return f"{name!r} is a symlink that leads nowhere"
        return f"{name!r} is a symlink"
    return f"{name!r} is a folder" if stat.S_ISDIR(mode) else f"{name!r} is no plain file"
