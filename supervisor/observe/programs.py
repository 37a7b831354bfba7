"""Are the programs that the settings name there, on this machine, and may they be started? Nothing is started."""

from __future__ import annotations

import os
import shutil

from supervisor.doctor.machine import ProgramSeen
from supervisor.settings import Settings


def look_at_programs(settings: Settings, folder: str) -> tuple[ProgramSeen, ...]:
    """Each with what is wrong with it, or "". `folder`: where relight.toml lies; paths are counted from there."""
    named = [("notify.command", settings.notify.command[0])] if settings.notify.command else []
    named += [("cluster.drain_command", settings.cluster.drain_command[0])] if settings.cluster.drain_command else []
    named += [("health.commands", words[0]) for words in settings.health.commands]
    seen = [ProgramSeen(setting, name, _trouble(name, folder)) for setting, name in named]
    python = settings.health.nvrx_python
    if python:  # a path in any case, also without a slash
        seen.append(ProgramSeen("health.nvrx_python", python, _of_file(os.path.join(folder, python))))
    return tuple(seen)


def _trouble(name: str, folder: str) -> str:
    if os.sep in name:
        return _of_file(os.path.join(folder, name))
    return "" if shutil.which(name) else "not in PATH"


def _of_file(path: str) -> str:
    if not os.path.exists(path):
        return "there is no such file"
    if not os.path.isfile(path):
        return "no file"
    return "" if os.access(path, os.X_OK) else "not executable"
