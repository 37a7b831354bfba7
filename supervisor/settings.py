"""Where things are: `relight.toml`, read and checked. What is tolerated stands in a profile (`policies/rules.py`)."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policies.layout import Layout
from supervisor.durable import create_whole
from supervisor.errors import UserError
from supervisor.toml_files import check, line_of, read_toml

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Size = Annotated[int, Field(ge=1, le=1_000_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSettings(_Section):
    """The run itself."""

    name: Name = "run"
    profile: str = "approve"
    warm: bool = False
    """Ranks are forked from a process that has torch imported; only for `python script` commands."""
    tokens_per_sample: Annotated[int, Field(ge=0)] = 0
    """For the account in tokens; 0 leaves tokens out of it."""


class LayoutSettings(_Section):
    """TP x PP x DP over ranks, in Megatron's order."""

    tp: Size = 1
    pp: Size = 1
    dp: Size = 1
    ranks_per_node: Size = 1
    order: str = "tp-dp-pp"


class ClusterSettings(_Section):
    """Which cluster, and how many hot spares."""

    kind: Literal["local"] = "local"
    spares: Annotated[int, Field(ge=0, le=10_000)] = 0


class CheckpointSettings(_Section):
    """Where saves are. Empty: `checkpoints/` in the run directory."""

    dir: str = ""


class NotifySettings(_Section):
    """A command that is run with the story on its standard input when a decision waits or something halts."""

    command: tuple[str, ...] = ()
    deadline_s: Annotated[float, Field(gt=0, le=600)] = 20


class Settings(_Section):
    """Everything in relight.toml."""

    run: RunSettings = RunSettings()
    layout: LayoutSettings = LayoutSettings()
    cluster: ClusterSettings = ClusterSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    notify: NotifySettings = NotifySettings()
    env: dict[Variable, Word] = Field(default_factory=dict)
    command: tuple[Word, ...] = ()
    cwd: str = ""

    def shape(self) -> Layout:
        """The layout. Raises ValueError with what would be right."""
        one = self.layout
        return Layout(one.tp, one.pp, one.dp, one.ranks_per_node, one.order)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of a local cluster's nodes, slots and spares."""
        return tuple(f"n{i:03d}" for i in range(self.shape().slots_needed + self.cluster.spares))


def read_settings(path: str) -> Settings:
    """relight.toml. Raises UserError with the line and what would be right."""
    table, text = read_toml(path)
    settings = check(Settings, table, path, text)
    try:
        settings.shape()
    except ValueError as error:
        message = str(error)
        key = message.split(" ", 1)[0].split(".")
        line = line_of(text, tuple(key)) if len(key) == 2 else None
        raise UserError(f"{path}:{line}: {message}" if line else f"{path}: {message}") from None
    return settings


def freeze(run_dir: str, settings: Settings) -> Settings:
    """Write settings.json at the first start; later starts must agree on what is fixed for a run. Raises UserError."""
    path = os.path.join(run_dir, "settings.json")
    data = json.dumps({"schema": 1, **settings.model_dump(mode="json")}, indent=1).encode()
    if create_whole(path, data):
        return settings
    before = frozen(run_dir)
    if before.run.name != settings.run.name:  # the cluster knows what runs by this name
        raise UserError(
            f"run.name has changed since this run began ({before.run.name} -> {settings.run.name}): a run keeps its name. "
            "Put it back, or start another run (another --run-dir)",
        )
    for what in ("layout", "cluster"):
        old, new = getattr(before, what), getattr(settings, what)
        if old != new:
            raise UserError(
                f"{what} has changed since this run began ({_changes(old, new)}): a run keeps its {what}. "
                "Put it back, or start another run (another --run-dir)",
            )
    return settings


def _changes(old: BaseModel, new: BaseModel) -> str:
    was, now = old.model_dump(), new.model_dump()
    return ", ".join(f"{k} {was[k]} -> {now[k]}" for k in was if was[k] != now[k])


def frozen(run_dir: str) -> Settings:
    """The settings that a run was started with. Raises UserError."""
    path = os.path.join(run_dir, "settings.json")
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(1_000_000))
        raw.pop("schema", None)
        return Settings.model_validate(raw)
    except FileNotFoundError:
        raise UserError(f"{run_dir}: no run of relight is here (no settings.json)") from None
    except (OSError, ValueError, ValidationError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
