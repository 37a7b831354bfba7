"""Which cluster a run has, opened: this machine as a small one, or the Slurm job that we are in."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from slurm import native_process
from slurm.asking import Commands
from slurm.cluster import Cluster, NotKnown, Unreadable
from slurm.commands import SlurmCommands
from slurm.jobs import SUBMISSION, Following, Submission
from slurm.local import LocalCluster
from slurm.native import Native
from slurm.parsing import JobRow
from slurm.reading import Source
from slurm.states import Phase
from supervisor.controller import Listen
from supervisor.durable import replace_whole
from supervisor.errors import NOT_YET_EXIT, REFUSED_EXIT, UserError
from supervisor.journal.lease import is_alive, read_holder
from supervisor.perform.effects import free_port
from supervisor.rundir import RunDir
from supervisor.settings import ClusterSettings, Settings

_MEETING_PORTS = range(20_000, 32_000)
"""Below the ports that Linux gives out by itself (32768 and up), so that nobody's connection has taken one by chance."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A cluster, where agents find the controller, and a port for ranks to meet at on the first slot's node."""

    cluster: Cluster
    listen: Listen
    free_port: Callable[[], int]


UNREAD_S, UNREAD_MAX_S = 5.0, 600.0
"""How often the job before is asked for while Slurm does not answer, and how long. Chosen."""
OUTSIDE = "outside"
"""In place of a job's id: the controller is not in the run's job, which is the one that last ran it."""


def open_cluster(run: RunDir, settings: Settings, job: str = "") -> Opened:
    """The cluster of the settings. `job`: the Slurm job, or OUTSIDE; empty: the one that we are in. Raises UserError."""
    if settings.cluster.kind == "slurm":
        return _slurm(run, settings, job)
    local = LocalCluster(run.root, settings.nodes)
    local.boot()
    return Opened(local, Listen(), free_port)


def _slurm(run: RunDir, settings: Settings, asked: str) -> Opened:
    job = _job(run, asked)
    missing = [name for name in ("srun", "squeue", "sinfo", "scontrol", "scancel") if shutil.which(name) is None]
    if missing:
        raise UserError(f"cluster slurm: {', '.join(missing)} not found in PATH")
    # A directory of this login may not be there on the nodes, and all must look for sockets in the same place.
    os.environ.pop("XDG_RUNTIME_DIR", None)
    one = settings.cluster
    cluster = SlurmCommands(
        run.root,
        job,
        options=one.srun_options,
        drain=one.drain,
        drain_command=one.drain_command,
        end_job=bool(asked),
        following=_following(one.next_job, inside=not asked),
        reads=_reads(one),
    )
    seen = cluster.read()
    wanted = settings.shape().slots_needed
    # One that can't be read now is waited for by the loop: to end here would end the job, and every rank with it.
    waits = not isinstance(seen, Unreadable) and seen.job is not None and seen.job.phase == "waiting"
    if not isinstance(seen, Unreadable) and not waits and len(seen.nodes) < wanted:
        raise UserError(f"cluster slurm: the layout needs {wanted} nodes, job {job} has {len(seen.nodes)}")
    here = os.environ.get("SLURMD_NODENAME", "")
    tell = one.listen or (cluster.address(here) if here else os.uname().nodename)
    return Opened(cluster, Listen("0.0.0.0", tell), _meeting_port)  # noqa: S104 - agents on all nodes; a token is asked of each


def _following(how: str, *, inside: bool) -> Following:
    """A job that was submitted with `relight sbatch` carries how. Outside of it that is not known, and requeueing is as quick."""
    told = os.environ.get(SUBMISSION, "") if inside and how in {"auto", "sbatch"} else ""
    return Following(Submission.read(told) if told else None, how in {"auto", "requeue"})


def _reads(settings: ClusterSettings) -> Callable[[Commands], Source] | None:
    """Who reads Slurm in place of the commands; nobody where pyslurm is not to be had. What does not fit, it finds out itself."""
    here = settings.pyslurm_python or importlib.util.find_spec("pyslurm") is not None
    if settings.reads == "commands" or (settings.reads == "auto" and not here):
        return None
    argv = native_process.command(os.path.abspath(settings.pyslurm_python) if settings.pyslurm_python else "")

    def native(commands: Commands) -> Source:
        return Native(commands, native_process.Worker(argv, commands.env), structlog.get_logger().warning)

    return native


def in_its_job(run: RunDir) -> bool:
    """Are we in the Slurm job that runs this run?"""
    try:
        noted = _noted(run)
    except OSError:  # not known: to end would end the job
        return "SLURM_JOB_ID" in os.environ
    return noted is not None and noted == os.environ.get("SLURM_JOB_ID")


def _noted(run: RunDir) -> str | None:
    """The job that last ran the run; None where none has. Raises OSError."""
    try:
        with open(run.path("job.json"), "rb") as file:
            return str(json.loads(file.read(4096))["job"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _job(run: RunDir, asked: str) -> str:
    """The id of the run's job; the one that we are in is noted for whoever comes from outside. Raises UserError."""
    if asked == OUTSIDE:
        noted = _noted(run)
        if noted is None:
            raise UserError(f"{run.root}: no job has run it yet (no job.json); give --job ID", NOT_YET_EXIT)
        job = noted
    else:
        job = asked or os.environ.get("SLURM_JOB_ID", "")
    if not (job.isascii() and job.isdigit()):
        raise UserError(
            f"cluster slurm: {job!r} is no job; relight run has to be started inside a Slurm job (see relight sbatch)"
        )
    holder = read_holder(run.path("lease"))
    # A run that another job's controller supervises stays that job's; this one is about to be refused.
    if not asked and (holder is None or not is_alive(holder, time.time())):
        _must_be_over(run, _noted(run) or job, job)
        replace_whole(run.path("job.json"), json.dumps({"schema": 1, "job": job}).encode())
    return job


def _must_be_over(run: RunDir, before: str, job: str) -> None:
    """With its batch host lost, and nobody outside, a job runs on without a controller: its ranks train on. Raises UserError."""
    if before == job:
        return
    slurm, until, said = SlurmCommands(run.root, before), time.monotonic() + UNREAD_MAX_S, ""
    while isinstance(seen := slurm.job(), Unreadable) and not isinstance(seen, NotKnown):
        if time.monotonic() >= until:
            raise UserError(f"job {before} has run {run.root}, and whether it still does can't be read: {seen.why}")
        if seen.why != said:
            structlog.get_logger().warning("job-before-unreadable", job=before, why=seen.why)
        said = seen.why
        time.sleep(UNREAD_S)  # Slurm announces nothing
    if isinstance(seen, JobRow) and seen.phase in {Phase.RUNNING, Phase.PAUSED}:
        raise UserError(
            f"job {before} still runs {run.root} and has no controller: "
            f"take it over with relight watch {run.root}, or scancel {before} first",
            REFUSED_EXIT,
        )


def _meeting_port() -> int:
    """A port of another machine can't be looked at from here. One that is taken fails a launch, and the next one differs."""
    return _MEETING_PORTS[secrets.randbelow(len(_MEETING_PORTS))]
