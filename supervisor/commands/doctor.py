"""`relight doctor`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurm.calls import Answer
    from supervisor.doctor.cluster import Ask
    from supervisor.doctor.nodes import Row
    from supervisor.doctor.rounds import Found
    from supervisor.doctor.verdict import Check
    from supervisor.doctor.within import Late

CALL_S = 20.0
"""For one command of Slurm, which gives up by itself after 10 s when slurmctld is away."""
WIDTH = 14


@click.command(
    "doctor",
    epilog="""\b
Examples:
  relight doctor
  relight doctor --config relight.toml --json
  srun --overlap --ntasks=1 relight doctor    (inside a job: its nodes too)
  relight doctor --job 4711 --run-dir /shared/runs/llm500b

\b
Where Slurm's commands are, the cluster is looked at too; inside a job, or with
--job, a step of a few seconds runs on each of its nodes. Nothing is changed:
whether you may drain nodes is looked up, not tried. The file system is tried
in a folder of its own beside the run, which is taken away again.

\b
Exit codes: 0 fit; 1 something is bad; 3 nothing is bad as far as could be
seen. A warning changes nothing.""",
)
@click.option("--config", type=click.Path(), help="The settings; relight.toml where it is there.")
@click.option("--run-dir", type=click.Path(), help="Where the run would lie. Default: ./relight-runs/NAME.")
@click.option("--job", default="", help="The Slurm job to look into. Default: the one that we are in.")
@click.option(
    "--step-s", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="For all nodes to answer."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(config: str | None, run_dir: str | None, job: str, step_s: float, as_json: bool) -> int:
    """Look whether this installation, this machine, this cluster and this job are fit."""
    from supervisor.doctor.machine import judge_installation  # noqa: PLC0415
    from supervisor.doctor.verdict import exit_code  # noqa: PLC0415
    from supervisor.doctor.within import Late  # noqa: PLC0415
    from supervisor.observe.installed import look_at_installation  # noqa: PLC0415

    path = config or ("relight.toml" if os.path.exists("relight.toml") else "")
    late = Late()
    checks: tuple[Check, ...] = (judge_installation(look_at_installation()),)
    rows: tuple[Row, ...] = ()
    if checks[0].state == "ok":  # else what is imported next is not ours
        found = everything(path, run_dir or "", job, step_s, late)
        checks, rows = found.checks, found.rows
    code = exit_code(checks)
    if as_json:
        lists = {"checks": [asdict(check) for check in checks], "nodes": [asdict(row) for row in rows]}
        click.echo(json.dumps({"schema": 2, "ok": code == 0, **lists}))
    else:
        click.echo(told(checks))
    if late.any:  # a thread that stands in a dead file system would keep this process for ever
        sys.stdout.flush()
        os._exit(code)
    return code


def everything(path: str, run_dir: str, job: str, step_s: float, late: Late) -> Found:
    """This machine, the file system where the run would live, and Slurm where it is there."""
    from supervisor.doctor import rounds  # noqa: PLC0415
    from supervisor.doctor.cluster import Who  # noqa: PLC0415
    from supervisor.errors import UserError  # noqa: PLC0415
    from supervisor.observe.machine import look, look_at_settings  # noqa: PLC0415

    inside = job or os.environ.get("SLURM_JOB_ID", "")
    if inside and not (inside.isascii() and inside.isdigit()):
        raise UserError(f"--job {inside}: no id of a job: a number is wanted")
    _, settings = look_at_settings(path)
    one = settings.cluster
    wanted = rounds.Wanted(
        os.path.abspath(run_dir or os.path.join("relight-runs", settings.run.name)),
        settings.shape().slots_needed,
        inside,
        one.drain,
        one.listen,
        one.srun_options,
        step_s,
        spares=one.spares,
    )
    with progress() as tell:
        found, seen = rounds.here(wanted, lambda: look(path, run_dir), late, tell)
        if seen is None or (one.kind == "local" and not job):
            return found
        if not seen.slurm.usable:
            return rounds.Found((*found.checks, *rounds.without_slurm(job)))
        more = rounds.slurm(wanted, asking(), Who(os.getuid(), _name()), os.environ, late, tell)
    return rounds.Found((*found.checks, *more.checks), more.rows)


def asking() -> Ask:
    """Commands of this machine, each with a deadline."""
    from slurm.calls import call, clean_environment  # noqa: PLC0415

    env = clean_environment(os.environ)

    def ask(*argv: str) -> Answer:
        return call(argv, CALL_S, env)

    return ask


def _name() -> str:
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user that this machine does not know
        return str(os.getuid())


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """One line on a terminal that says what is being done, gone when it is done; nothing elsewhere."""
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("") as status:
        yield status.update


def told(checks: tuple[Check, ...]) -> str:
    """One line a check, and one that sums up."""
    from supervisor.telling.say import clean, count, names  # noqa: PLC0415

    lines = []
    for check in checks:
        right = f"  Right: {check.right}" if check.right else ""
        lines.append(f"{check.state:7}  {check.name:{WIDTH}}  {clean(check.seen, 500)}{right}")
    of = {state: [check.name for check in checks if check.state == state] for state in ("bad", "unknown", "warn")}
    verdict = f"Bad: {names(of['bad'], 16)}" if of["bad"] else "Nothing is bad"
    verdict += f"; unknown: {names(of['unknown'], 16)}" if of["unknown"] else "; nothing is unknown"
    return "\n".join([*lines, f"{verdict}; {count(len(of['warn']), 'warning')}."])
