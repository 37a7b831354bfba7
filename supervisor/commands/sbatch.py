"""`relight sbatch job.sbatch`."""

from __future__ import annotations

import os
import shlex
import subprocess

import click

SCRIPT_MAX = 4 << 20
"""Bytes: what Slurm itself takes by default (MaxScriptSize)."""
CALL_S = 60.0


@click.command(
    "sbatch",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  relight sbatch job.sbatch
  relight sbatch --spares 3 --profile auto job.sbatch --seed 7
  relight sbatch --dry-run job.sbatch

\b
The script stays as it is but for one word: where it called srun, it calls
  relight run -- python train.py ...
Its --nodes are those of the training; the spares come on top. What else is
needed is given to sbatch beside it, and shown: --no-kill --requeue
--open-mode=append --exclusive. What can't be had together is refused with the
line. No privileges are needed.""",
)
@click.option("--spares", type=click.IntRange(0, 10_000), default=1, show_default=True, help="Hot spares in the job.")
@click.option("--profile", default="", help="For `relight run`: auto, approve, observe, or a path.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted, and submit nothing.")
@click.argument("script", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(spares: int, profile: str, dry_run: bool, script: str, arguments: tuple[str, ...]) -> int:
    """Submit SCRIPT with what relight needs: spares, and a job that outlives a lost node."""
    from slurm import sbatch  # noqa: PLC0415 - `relight --help` need not wait for it
    from slurm.jobs import SUBMISSION, Submission  # noqa: PLC0415
    from supervisor.errors import UserError  # noqa: PLC0415
    from supervisor.profiles import load_profile  # noqa: PLC0415
    from supervisor.telling.say import count  # noqa: PLC0415

    if script.startswith("-"):
        raise UserError(
            f"{script}: relight sbatch has no such option. What sbatch is to know stands in the script: #SBATCH {script} ..."
        )
    try:
        with open(script, "rb") as file:
            raw = file.read(SCRIPT_MAX + 1)
    except OSError as error:
        raise UserError(f"{script}: {error.strerror or error}") from None
    if not raw.startswith(b"#!") or len(raw) > SCRIPT_MAX:
        raise UserError(f"{script}: no job script: it must begin with #! and be smaller than {SCRIPT_MAX >> 20} MiB")
    text = raw.decode("utf-8", "replace")
    if profile:
        load_profile(profile)  # a wrong one is told now, not when the job has waited for its nodes
        if "," in profile:
            raise UserError(f"--profile {profile}: no comma can stand in it: sbatch would cut it there")
    try:
        asked = sbatch.ask(text, spares, {"RELIGHT_PROFILE": profile} if profile else None, (SUBMISSION,))
    except sbatch.ConflictError as error:
        raise UserError(f"{script}: {error}") from None
    if not sbatch.calls_relight(text):
        raise UserError(f"{script}: it does not call `relight run`: put `relight run --` where it calls srun")
    if line := sbatch.as_step(text):
        raise UserError(
            f"{script}: line {line}: srun would start `relight run` on every node: take srun away, it starts the ranks"
        )
    _compare(asked.nodes)
    words = ["sbatch", *asked.words, script, *arguments]
    click.echo(f"{count(asked.nodes, 'node')} for the training, {count(asked.spares, 'hot spare')}:", err=True)
    how = Submission((*asked.words, os.path.abspath(script), *arguments), os.getcwd(), asked.nodes)
    # sbatch obeys the variable as it does --no-kill, and hands it on: inside the job nothing else tells of it.
    ours = {"SBATCH_NO_KILL": "set", SUBMISSION: how.text()}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in ours.items())
    click.echo(f"{settings} {shlex.join(words)}", err=not dry_run)
    if dry_run:
        return 0
    try:
        env = {**os.environ, **ours}
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=CALL_S, env=env)
    except FileNotFoundError:
        raise UserError("sbatch is not in PATH: is this a machine of the cluster?") from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"sbatch did not answer within {CALL_S:.0f} s; look at squeue before it is tried again", 3
        ) from None
    if done.returncode:
        raise UserError(f"sbatch refused it: {done.stderr.strip() or f'exit {done.returncode}'}", 1)
    click.echo(done.stdout.strip())
    click.echo("The run begins when its job does: squeue --me. Then: relight status", err=True)
    return 0


def _compare(nodes: int) -> None:
    """Say what of the relight.toml here does not fit. The script may use another one, so nothing is refused for it."""
    from supervisor.errors import UserError  # noqa: PLC0415
    from supervisor.settings import read_settings  # noqa: PLC0415
    from supervisor.telling.say import count  # noqa: PLC0415

    if not os.path.exists("relight.toml"):
        return
    try:
        wanted = read_settings("relight.toml").shape().slots_needed
    except UserError as error:
        click.echo(f"relight: {error}", err=True)
        return
    if wanted != nodes:
        told = f"the layout of relight.toml here needs {count(wanted, 'node')}, the script asks for {nodes}"
        click.echo(f"relight: {told} (spares are added to what it asks for)", err=True)
