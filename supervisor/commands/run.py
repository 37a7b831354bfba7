"""`relight run`: supervise a training command until it is done or halted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from supervisor.errors import NOT_YET_EXIT, OWN_FAULT_EXIT, REFUSED_EXIT, UserError

if TYPE_CHECKING:
    from supervisor.settings import Settings

_HELD = frozenset({REFUSED_EXIT, OWN_FAULT_EXIT})
_NOT_BEGUN = frozenset({2, NOT_YET_EXIT})


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  relight run -- python train.py --steps 1000
  relight run --config relight.toml --profile auto -- python train.py --save {save_dir} --load {load_dir}
  relight run --run-dir relight-runs/demo     take over a run that has no controller, with its own command

\b
{save_dir} and {load_dir} in the command are filled in for each attempt; the ranks find them in
RELIGHT_SAVE_DIR and RELIGHT_LOAD_DIR too. With `framework = "megatron"` under [checkpoints] they are
put in, with --exit-on-missing-checkpoint and --ckpt-format torch_dist, and what a restart could not go
on with is refused (docs/checkpoints.md). SIGTERM or Ctrl-C asks the ranks to save and stop.""",
)
@click.option(
    "--cluster",
    type=click.Choice(["local", "slurm"]),
    help="Which cluster; slurm inside a Slurm job. local: this machine as a small one.",
)
@click.option("--config", type=click.Path(), help="The settings; relight.toml where it is there.")
@click.option(
    "--profile",
    envvar="RELIGHT_PROFILE",
    help="What is tolerated: auto, approve, observe, or a path. Overrides the settings.",
)
@click.option("--run-dir", type=click.Path(), help="Default: ./relight-runs/NAME.")
@click.option("--epoch-only", is_flag=True, hidden=True, help="One controller, without the parent that restarts it.")
@click.option("--stop-asked", default="", hidden=True, help="A stop was asked for before this controller began.")
@click.option("--again", is_flag=True, hidden=True, help="It follows a controller that died.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def command(
    cluster: str | None,
    config: str | None,
    profile: str | None,
    run_dir: str | None,
    epoch_only: bool,
    stop_asked: str,
    again: bool,
    command_line: tuple[str, ...],
) -> int:
    """Start CMD (or `command` of the settings) once per rank, watch it, and bring it back when it stops."""
    from supervisor import app, parent  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.clusters import in_its_job  # noqa: PLC0415
    from supervisor.commands import not_begun  # noqa: PLC0415
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.prepare import Wishes, is_taken_as_it_was, prepare  # noqa: PLC0415
    from supervisor.profiles import in_force  # noqa: PLC0415

    wishes = Wishes(cluster, config, profile, run_dir, command_line)
    run, settings, rules = prepare(wishes)
    if not epoch_only and not_begun.stopped_before(run, settings):
        click.echo(
            f"relight: {settings.run.name} was stopped after this job was asked for; it is not gone on with",
            err=True,
        )
        click.echo("relight: to go on, submit the job script again", err=True)
        return 0
    if not epoch_only:
        as_it_was = is_taken_as_it_was(wishes)
        if as_it_was and os.path.exists("relight.toml"):
            click.echo("relight: relight.toml here is of another run; this one goes on as it was started", err=True)
        say_whom_to_tell(run.root, settings, config, as_it_was=as_it_was)
        _say_what_to_know(settings)
        own = [sys.executable, "-m", "supervisor", *sys.argv[1:2], "--epoch-only"]

        def epoch(stop: str, again: bool) -> list[str]:
            return [*own, *(("--stop-asked", stop) if stop else ()), *(("--again",) if again else ()), *sys.argv[2:]]

        began = time.time()
        code = parent.keep(epoch)
        # To end here would end the job, and every rank with it; also where the next controller can't begin: of an edited
        # relight.toml, or a folder that is away.
        while in_its_job(run) and (code in _HELD or (code in _NOT_BEGUN and may_train(run.root, began))):
            ended = hold(run.root, code)
            code = parent.keep(epoch) if ended is None else ended
        return code
    app.log_to_stderr()
    if not profile and is_taken_as_it_was(wishes):
        rules = in_force(look(run.root).history, settings.run.profile)
    parts = None
    try:
        parts = app.build(run, settings, rules)
        return app.supervise(parts, stop_asked, again=again)
    except UserError as error:
        # With another controller at work, or a damaged journal, the job is held: that is no end of it.
        if parts is None or error.exit_code not in _HELD:
            not_begun.tell(run, settings, error)
        raise


def may_train(root: str, since: float) -> bool:
    """May ranks live that a controller of this job has launched or taken over (since then, wall seconds)? Unknown is yes."""
    from supervisor.commands.asking import look  # noqa: PLC0415

    try:
        history = look(root).history
    except (UserError, OSError):
        return True
    attempt = history.attempt
    return history.epoch_began_at >= since and attempt is not None and attempt.closed_at is None


def hold(root: str, code: int, pause: Callable[[float], None] = time.sleep) -> int | None:
    """Somebody outside has taken the run over, or our controllers keep dying or can't begin. None: our turn; else all is over."""
    from supervisor.commands.standing_by import stand_by  # noqa: PLC0415
    from supervisor.parent import WINDOW_S  # noqa: PLC0415

    if code != REFUSED_EXIT:
        minutes = WINDOW_S / 60
        click.echo(f"relight: the job is held, for the ranks go on; the next try is in {minutes:.0f} min", err=True)
        pause(WINDOW_S)  # nothing announces that the cause is mended; who outside takes over is seen below
    return stand_by(root)


def _say_what_to_know(settings: Settings) -> None:
    """What is allowed in Megatron's arguments, and wants a second thought."""
    from supervisor.checkpoints import megatron_command  # noqa: PLC0415

    if settings.checkpoints.framework == megatron_command.FRAMEWORK:
        for warning in megatron_command.prepare(settings.command).warnings:
            click.echo(f"relight: {warning}", err=True)


def say_whom_to_tell(run_root: str, settings: Settings, config: str | None, *, as_it_was: bool) -> None:
    """Leave `[notify]` with its secrets in the run directory for the controllers and the guard. Raises UserError.

    `as_it_was`: what was left there counts; the frozen settings have no secrets that could stand in for it.
    """
    from supervisor.guard import watch as guard  # noqa: PLC0415
    from supervisor.telling import targets  # noqa: PLC0415

    left = targets.read(run_root) if as_it_was else None
    if left is not None:
        whom = left
    else:
        whom = targets.gather(settings.notify, config or "relight.toml")
        targets.must_be_understood(whom)
        targets.leave(run_root, whom)
    if whom.any:
        try:
            guard.start(run_root)
        except UserError as error:  # the run is worth more than its guard
            click.echo(f"relight: {error}. The run is started without it", err=True)
