"""From what a person typed to a run that can be supervised: settings, profile, run directory."""

from __future__ import annotations

import os
from dataclasses import dataclass

from policies.rules import Rules
from supervisor import launchers
from supervisor.checkpoints import megatron_command
from supervisor.checkpoints.spec import document as documents
from supervisor.errors import UserError
from supervisor.profiles import load_profile
from supervisor.run_spec import take_up
from supervisor.rundir import RunDir
from supervisor.settings import Settings, freeze, frozen, read_settings


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of `relight run`; None (and no command) where nothing was said: then the settings count."""

    cluster: str | None
    config: str | None
    profile: str | None
    run_dir: str | None
    command: tuple[str, ...]


def prepare(wishes: Wishes) -> tuple[RunDir, Settings, Rules]:
    """Read, check and freeze. Raises UserError."""
    path, settings = _asked(wishes)
    # Absolute: the ranks, and whoever takes the run over, may stand in another folder.
    cwd = os.path.abspath(settings.cwd or os.getcwd())
    changes: dict[str, object] = {"command": wishes.command or settings.command, "cwd": cwd}
    checkpoints = settings.checkpoints
    if checkpoints.dir:
        checkpoints = checkpoints.model_copy(update={"dir": os.path.abspath(checkpoints.dir)})
    if settings.archive.place and "://" not in settings.archive.place:
        absolute = os.path.abspath(settings.archive.place)
        changes["archive"] = settings.archive.model_copy(update={"place": absolute})
    kind = wishes.cluster or settings.cluster.kind
    if kind == "auto":
        kind = "slurm" if os.environ.get("SLURM_JOB_ID") else "local"
    changes["cluster"] = settings.cluster.model_copy(update={"kind": kind})
    if wishes.profile:
        changes["run"] = settings.run.model_copy(update={"profile": wishes.profile})
    settings = settings.model_copy(update=changes)
    if not settings.command:
        raise UserError("no command: give it after --, or as `command` in relight.toml")
    launchers.check(settings.command, settings.layout.ranks_per_node)
    if checkpoints.framework == megatron_command.FRAMEWORK:
        settings = settings.model_copy(update={"command": megatron_command.prepare(settings.command).argv})
    if not os.path.isdir(cwd):
        raise UserError(f"cwd = {cwd!r}: there is no such folder")
    rules = load_profile(settings.run.profile)
    run = RunDir(os.path.abspath(wishes.run_dir or os.path.join("relight-runs", settings.run.name)))
    run.create()
    folder = os.path.dirname(os.path.abspath(path)) if path else os.getcwd()
    settings = settings.model_copy(update=_found_from_anywhere(settings, folder))
    settings = settings.model_copy(update={"checkpoints": take_up(run.root, checkpoints, folder)})
    return run, freeze(run.root, settings), rules


def _asked(wishes: Wishes) -> tuple[str | None, Settings]:
    """The path of relight.toml, and what it says; where a run is taken over, what that run was started with.

    Taking over is one command: no training command need be typed again, and with --run-dir no folder be found. Then another
    run's relight.toml, which lies where somebody happens to stand, does not count.
    """
    path = wishes.config or ("relight.toml" if os.path.exists("relight.toml") else None)
    settings = read_settings(path) if path else Settings()
    if wishes.command:
        return path, settings
    root = os.path.abspath(wishes.run_dir or os.path.join("relight-runs", settings.run.name))
    if not os.path.exists(os.path.join(root, "settings.json")):
        return path, settings
    before = frozen(root)
    here = (settings.run.name, os.path.abspath(settings.cwd or os.getcwd()))
    another = wishes.run_dir is not None and wishes.config is None and (before.run.name, before.cwd) != here
    if path is None or another:
        return None, before
    if settings.command:
        return path, settings
    return path, settings.model_copy(update={"command": before.command, "cwd": settings.cwd or before.cwd})


def is_taken_as_it_was(wishes: Wishes) -> bool:
    """Is a run taken over with no relight.toml that says anything of it? Then whom to tell stays as it was left there too."""
    return _asked(wishes)[0] is None and not wishes.command


def _found_from_anywhere(settings: Settings, folder: str) -> dict[str, object]:
    """Paths as they are frozen: absolute, for whoever takes the run over may stand in another folder.

    `folder`: where relight.toml lies; a notice's command is counted from there, as the doctor counts it.
    """
    changes: dict[str, object] = {}
    profile, python, page = settings.run.profile, settings.health.nvrx_python, settings.notify.command
    if os.sep in profile or profile.endswith(".toml"):
        changes["run"] = settings.run.model_copy(update={"profile": os.path.abspath(profile)})
    if python:
        changes["health"] = settings.health.model_copy(update={"nvrx_python": os.path.abspath(python)})
    if page and os.sep in page[0]:
        command = (os.path.normpath(os.path.join(folder, page[0])), *page[1:])
        changes["notify"] = settings.notify.model_copy(update={"command": command})
    return changes


def examine(settings: Settings, config: str) -> None:
    """What a first start would refuse beside the layout and the profile. Raises UserError."""
    asked = settings.checkpoints
    if asked.framework == megatron_command.FRAMEWORK and settings.command:  # else it stands behind -- of `relight run`
        megatron_command.prepare(settings.command)
    if asked.spec:
        documents.read(os.path.join(os.path.dirname(os.path.abspath(config)), asked.spec))
