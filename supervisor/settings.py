"""Where things are: `relight.toml`, read and checked. What is tolerated stands in a profile (`policies/rules.py`)."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from policies.layout import Layout
from supervisor.durable import create_whole, show_whole
from supervisor.errors import UserError
from supervisor.toml_files import check, line_of, read_toml

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
SHM = "/dev/shm"  # noqa: S108  the place itself, not a file in it

KERNEL_LOG = {"local": "none"}
"""On a local cluster all nodes are one machine: its kernel can't say which of them it speaks of."""

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
    """Which cluster, and how many hot spares.

    On Slurm the nodes are those of the job: what the layout does not need is spare, whatever `spares` says.
    """

    kind: Literal["auto", "local", "slurm"] = "auto"
    """auto: slurm inside a Slurm job, else local. Settled at the first start."""
    spares: Annotated[int, Field(ge=0, le=10_000)] = 0
    srun_options: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    """More words for every srun, such as --cpu-bind=none or --mpi=none."""
    drain: bool = True
    """Drain barred nodes in Slurm too, where this user may. Our own exclusion holds in any case."""
    drain_command: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    """A site's command in place of `scontrol update`: called as `... drain NODE KEY WHY`, and `... resume NODE KEY ""`."""
    next_job: Literal["auto", "requeue", "sbatch", "none"] = "auto"
    """How a run goes on when its job ends: requeued, or submitted again as it was (only by `relight sbatch`). auto: submitted
    again where the controller is in the job and knows how, else requeued."""
    reads: Literal["auto", "commands", "pyslurm"] = "auto"
    """How Slurm is read. auto: with pyslurm where it is installed and fits this Slurm, else by commands (docs/slurm.md)."""
    pyslurm_python: Word = ""
    """The path of a Python that has pyslurm, where our own has not."""
    listen: Word = ""
    """The address at which agents find the controller; empty: that of this host (slurm), loopback (local)."""


class CheckpointSettings(_Section):
    """Where saves are; empty: `checkpoints/` in the run directory. How fast they are read to be sealed, while training runs.

    `read_mb_s`: MB (10^6 bytes) a second at most; 0: as fast as it goes. `read_threads`: 0: two a core, at most 16.
    `spread_mb`: from so many MB on the agents of idle nodes read a save together.
    """

    dir: str = ""
    read_mb_s: Annotated[float, Field(ge=0, le=10_000_000)] = 0
    read_threads: Annotated[int, Field(ge=0, le=256)] = 0
    spread_mb: Annotated[float, Field(ge=0, le=1e12)] = 1000
    spec: Word = ""
    """What every save must hold: a file of `relight checkpoints spec` or SaveSpec, from the folder of relight.toml."""
    spec_digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Written down when the spec is frozen; given, the spec must have it."""
    framework: Literal["", "megatron"] = ""
    """"megatron": its arguments are put into the command, and those with which no restart would go on are refused."""


Urls = Annotated[tuple[SecretStr, ...], Field(max_length=32, exclude=True)]
"""They hold secrets: shown in no error, and never written to settings.json (`exclude`)."""
Url = Annotated[SecretStr, Field(max_length=2000, exclude=True)]


class ArchiveSettings(_Section):
    """A second place for the newest saves: a folder on another file system, or s3://BUCKET/PREFIX; empty: none.

    `keep`: so many copies stay there.
    """

    place: Word = ""
    keep: Annotated[int, Field(ge=1, le=10_000)] = 7


class NotifySettings(_Section):
    """Who is told when a decision waits or something halts, and which dead man's switches are kept (docs/notices.md)."""

    command: tuple[Word, ...] = ()
    """Run with the story on its standard input."""
    deadline_s: Annotated[float, Field(gt=0, le=600)] = 20
    """How long one try may take."""
    urls: Urls = ()
    """As apprise has them: mailtos://, slack://, and a hundred others."""
    escalate_urls: Urls = ()
    """Told too when nobody has answered for `telling.escalate_s` of the profile."""
    urls_file: Word = ""
    """A TOML file of mode 0600 with what of these is secret, for a relight.toml that all may read."""
    link: Annotated[str, Field(pattern=r"^(https?://[^\s#]+)?$", max_length=500)] = ""
    """The console, as a phone reaches it: https://host:8440."""
    heartbeat_url: Url = SecretStr("")
    """A dead man's switch: fetched while the loop turns and the journal can be written."""
    heartbeat_s: Annotated[float, Field(ge=5, le=86_400)] = 60
    guard_heartbeat_url: Url = SecretStr("")
    """The same for the guard."""


class HealthSettings(_Section):
    """What every agent looks at on its node, beside the run's own folders, memory, clock and GPUs."""

    every_s: Annotated[float, Field(ge=0, le=86400)] = 60
    """Seconds between two rounds of checks; 0: no checks."""
    deadline_s: Annotated[float, Field(gt=0, le=3600)] = 20
    """How long one check may take; then it is unknown."""
    paths: Annotated[tuple[Word, ...], Field(max_length=16)] = ()
    """More places that must have room."""
    commands: Annotated[tuple[Annotated[tuple[Word, ...], Field(min_length=1)], ...], Field(max_length=16)] = ()
    """The site's own checks, such as LBNL NHC: exit 0 is healthy, exit 1 is not."""
    kernel_log: Word = ""
    """A path; "none" to leave it; empty: /dev/kmsg, else the journal."""
    nvrx_python: Word = ""
    """The path of a Python that has nvidia_resiliency_ext (`make setup`: .venv-nvrx/bin/python), where our own has not."""


class Settings(_Section):
    """Everything in relight.toml."""

    run: RunSettings = RunSettings()
    layout: LayoutSettings = LayoutSettings()
    cluster: ClusterSettings = ClusterSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    archive: ArchiveSettings = ArchiveSettings()
    notify: NotifySettings = NotifySettings()
    health: HealthSettings = HealthSettings()
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
    if not create_whole(path, data):
        _refuse_changes(frozen(run_dir), settings)
    tell_agents(run_dir, settings)
    return settings


def tell_agents(run_dir: str, settings: Settings) -> None:
    """Write health.json, what the agents check. Not frozen: a site's check may have to be switched off in a long run."""
    health = settings.health.model_dump(mode="json")
    health["paths"] = [
        run_dir,
        *([settings.checkpoints.dir] if settings.checkpoints.dir else []),
        SHM,
        *health["paths"],
    ]
    health["kernel_log"] = health["kernel_log"] or KERNEL_LOG.get(settings.cluster.kind, "")
    if health["nvrx_python"]:
        health["nvrx_python"] = os.path.abspath(health["nvrx_python"])
    show_whole(os.path.join(run_dir, "health.json"), json.dumps({"schema": 1, **health}).encode())


def _refuse_changes(before: Settings, settings: Settings) -> None:
    """Raise UserError where settings differ from those that a run was started with, in what is fixed."""
    if before.run.name != settings.run.name:  # the cluster knows what runs by this name
        raise UserError(
            f"run.name has changed since this run began ({before.run.name} -> {settings.run.name}): a run keeps its name. "
            "Put it back, or start another run (another --run-dir)",
        )
    for what, fixed in (("layout", tuple(LayoutSettings.model_fields)), ("cluster", ("kind", "spares"))):
        changes = _changes(getattr(before, what), getattr(settings, what), fixed)
        if changes:
            raise UserError(
                f"{what} has changed since this run began ({changes}): a run keeps its {what}. "
                "Put it back, or start another run (another --run-dir)",
            )


def _changes(old: BaseModel, new: BaseModel, fixed: tuple[str, ...]) -> str:
    was, now = old.model_dump(), new.model_dump()
    return ", ".join(f"{k} {was[k]} -> {now[k]}" for k in fixed if was[k] != now[k])


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
