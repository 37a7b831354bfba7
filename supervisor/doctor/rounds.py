"""Everything of Slurm and of the shared file system, in order, with a deadline each. The parts meet here and nowhere else."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from slurm import parsing
from slurm.calls import clean_environment
from supervisor.doctor import cluster, job, nodes, probe, shared_fs, step
from supervisor.doctor.cluster import Ask, Who
from supervisor.doctor.machine import Machine, examine
from supervisor.doctor.verdict import Check
from supervisor.doctor.within import Late

STEP_S: Final = 60.0
"""For all nodes to answer: 640 tasks took 26 s to start on one small machine; a hung node is given up by srun after 40 s."""
TRIALS_S: Final = 180.0
"""For what the nodes try together; each answer has 15 s, and who misses it is left out."""
HERE_S: Final = 60.0
"""For this machine, and again for the file system: each takes a second where nothing is wrong."""
_DECODERS: Final = 4

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the run asks for. `job`: the Slurm job to look into, "" for none; `listen`, `options`, `drain`, `spares` as in
    [cluster].
    """

    run_dir: str
    nodes: int
    job: str = ""
    drain: bool = True
    listen: str = ""
    options: tuple[str, ...] = ()
    step_s: float = STEP_S
    here_s: float = HERE_S
    spares: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """All verdicts, and one row a node of the job."""

    checks: tuple[Check, ...]
    rows: tuple[nodes.Row, ...] = ()


def here(wanted: Wanted, look: Callable[[], Machine], late: Late, tell: Tell) -> tuple[Found, Machine | None]:
    """This machine, then the file system of the run. `look` gives what there is to be seen; None: it did not in time."""
    tell("looking at this machine")
    seen = late.within(wanted.here_s, look, None)
    if seen is None:
        right = f"is the file system of {wanted.run_dir} there? `df {wanted.run_dir}` and dmesg may tell"
        return Found((Check("machine", "unknown", f"not looked through within {wanted.here_s:.0f} s", right),)), None
    tell("trying the file system of the run")
    silent: tuple[Check, ...] = (
        Check(
            "fs-create",
            "unknown",
            f"no answer of the file system within {wanted.here_s:.0f} s",
            "dmesg; is its server up?",
        ),
    )
    return Found((*examine(seen), *late.within(wanted.here_s, lambda: file_system(wanted.run_dir), silent))), seen


def without_slurm(job: str) -> tuple[Check, ...]:
    """A job that was named and can't be looked into is not passed over."""
    right = (
        "relight doctor --job on a machine of the cluster: Slurm's commands in PATH, and a slurm.conf (or SLURM_CONF)"
    )
    return (Check("job", "unknown", f"job {job}: there is no Slurm here to be asked", right),) if job else ()


def file_system(run_dir: str) -> tuple[Check, ...]:
    """Measured where the run will live."""
    try:
        with shared_fs.scratch(run_dir) as folder:
            return shared_fs.look(folder)
    except OSError as error:
        text = f"{error.strerror or error}: {error.filename or run_dir}"
        return (Check("fs-create", "bad", text, "a folder that you can write"),)


def slurm(wanted: Wanted, ask: Ask, who: Who, env: Mapping[str, str], late: Late, tell: Tell) -> Found:
    """The cluster, then the job, then its nodes. `env`: ours, with the variables of the job."""
    tell("asking Slurm")
    spares = job.spares_asked(env, wanted.job, wanted.spares)
    seen = cluster.look(ask, who, nodes=wanted.nodes, drain=wanted.drain, spares=spares)
    if not seen.answers or not wanted.job:
        return Found(seen.checks)
    accounting = seen.config.get("AccountingStorageType", "").startswith("accounting_storage/slurmdbd")
    ours = job.look(ask, wanted.job, env, needed=wanted.nodes, accounting=accounting, spares=spares)
    if not ours.nodes:
        return Found((*seen.checks, *ours.checks))
    silent = Found(
        (Check("nodes", "unknown", "the step and its trials did not end in time", "the file system first: fs-create"),)
    )
    step_ended = late.within(
        wanted.step_s + TRIALS_S, lambda: on_nodes(wanted, ours.nodes, seen, ask, env, tell), silent
    )
    return Found((*seen.checks, *ours.checks, *step_ended.checks), step_ended.rows)


def on_nodes(
    wanted: Wanted, names: tuple[str, ...], seen: cluster.Seen, ask: Ask, env: Mapping[str, str], tell: Tell
) -> Found:
    """One step over all of them, and what it showed."""
    homes, digest = probe.packages()
    ours = nodes.Ours(homes["supervisor"] or "", digest, sys.version_info[:3], secrets.token_hex(16))
    socket = ("-S", seen.munge_socket) if seen.munge_socket else ()
    words = ("munge", "-n", *socket) if seen.has_munge else ()
    tell(f"0 of {len(names):,} nodes have answered")
    try:
        with shared_fs.scratch(wanted.run_dir) as folder:
            address = wanted.listen or _address(ask, env.get("SLURMD_NODENAME", ""))
            place = step.Place(wanted.job, names, folder, address, wanted.options, words)
            with open(os.path.join(folder, "nonce"), "x", encoding="ascii") as file:
                file.write(ours.nonce)
            heard = _heard(place, clean_environment(env), wanted.step_s, tell)
    except OSError as error:
        text = f"the step can't be started: {error.strerror or error}: {error.filename or ''}".rstrip(": ")
        return Found((Check("nodes", "unknown", text, "srun in PATH, and a folder for the run that you can write"),))
    munged = _munged(heard, seen.munge_socket, ask) if words else {}
    rows = nodes.rows(names, heard, ours, munged)
    return Found(nodes.judge(rows, heard, ours, deadline_s=wanted.step_s, munge=bool(words)), rows)


def _heard(place: step.Place, env: Mapping[str, str], step_s: float, tell: Tell) -> step.Heard:
    """One step; and a second one without those that did not answer, where they took the others with them.

    srun ends the whole step when it can't launch a task (22.05, 24.11: after 11 s for a dead node, 20 s for a hung one).
    """
    heard = asyncio.run(step.run(place, env, step_s, tell))
    some = tuple(node for node in place.nodes if node in heard.reports.keys() | set(heard.tried.peers))
    if not some or len(some) == len(place.nodes) or not set(heard.tried.peers) <= heard.tried.lost.keys():
        return heard
    tell(f"once more, with the {len(some):,} nodes that have answered")
    again = asyncio.run(step.run(replace(place, nodes=some), env, step_s, tell))
    again.said = heard.said + again.said
    again.reports = heard.reports | again.reports
    return again


def _address(ask: Ask, here: str) -> str:
    """How other nodes reach this host: NodeAddr where it is a node, as the controller tells its agents; else its name."""
    if here:
        answer = ask("sinfo", "--noheader", "--Node", f"--nodes={here}", "-O", parsing.NODE_FORMAT)
        try:
            row = parsing.nodes(answer.out).get(here) if answer.ok else None
        except ValueError:
            row = None
        if row is not None:
            return row.address
    return os.uname().nodename


def _munged(heard: step.Heard, socket: str, ask: Ask) -> dict[str, str]:
    """What was wrong with each node's credential, "" for one that this host takes."""

    def one(told: Mapping[str, object]) -> str:
        credential = told.get("credential")
        if not isinstance(credential, str) or not credential:
            return f"no credential: {told.get('munge') or 'munge said nothing'}"
        return cluster.decoded(ask, credential, socket)

    with ThreadPoolExecutor(_DECODERS) as pool:
        return dict(zip(heard.reports, pool.map(one, heard.reports.values()), strict=True))
