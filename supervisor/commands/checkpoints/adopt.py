"""`relight checkpoints adopt RUN PATH`."""

from __future__ import annotations

import os

import click

from supervisor.errors import NOT_YET_EXIT, NotRestorable, UserError


@click.command(
    "adopt",
    epilog="""\b
Examples:
  relight checkpoints adopt demo /ckpt/old-run
  relight checkpoints adopt demo /ckpt/old-run/iter_0041200
  relight checkpoints adopt demo /ckpt/old-run --config relight.toml
  relight checkpoints adopt demo /ckpt/old-run --config relight.toml -- python train.py ...

\b
PATH is the directory of one iteration, or the one above it. The save is
checked to the last byte and stays where it is: others can still delete it, so
copy it with `relight checkpoints archive`. It is pinned. With --config, a run that was never
started is prepared first: its first attempt then starts from that save.
Exit codes: 0 adopted, 1 broken, or it may not be adopted, 3 it can't be judged now.""",
)
@click.argument("run")
@click.argument("path", type=click.Path())
@click.option("--config", type=click.Path(), help="The settings of a run that is not there yet.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def command(run: str, path: str, config: str | None, command_line: tuple[str, ...]) -> int:
    """Take a save from before relight into RUN."""
    from supervisor.commands.checkpoints.opening import open_run, settled  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.telling.say import clean, size  # noqa: PLC0415

    if config is not None:
        _prepare(run, config, command_line)
    elif command_line:
        raise click.UsageError("a command goes with --config, for a run that is not there yet")
    opened = open_run(run)
    if opened.seen.history.epoch == 0:  # no controller has made the store yet; later it is never made anew
        settled(opened.store.create, f"{run}: the checkpoint store can't be made")
    opened.accounts()
    try:
        state = settled(lambda: opened.store.adopt(path), f"{path} is not adopted")
    except NotRestorable as error:
        click.echo(f"{clean(path)}: not adopted: {clean(error.reasons[0])}")
        for reason in error.reasons[1:]:
            click.echo(f"  {clean(reason)}")
        return NOT_YET_EXIT if error.not_yet else 1
    where = settled(lambda: opened.store.place(state.id), state.id).data
    click.echo(f"{state.id}: adopted where it lies, {size(state.bytes)}: {clean(where)}")
    click.echo(f"It is pinned, so it stays in the list: relight checkpoints unpin {clean(run)} {state.id}")
    click.echo(f"Others can still delete it. A copy of your own: relight checkpoints archive {clean(run)} {state.id}")
    return 0


def _prepare(run: str, config: str, command_line: tuple[str, ...]) -> None:
    """Make the run directory and freeze the settings, as the first start would. Raises UserError."""
    from supervisor.prepare import Wishes, prepare  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.settings import read_settings  # noqa: PLC0415

    there = RunDir.of(run).root
    if os.path.exists(os.path.join(there, "settings.json")):
        raise UserError(f"{run}: the run is there already; leave --config out")
    name = read_settings(config).run.name
    if os.sep not in run and run != name:
        raise UserError(f"{run}: {config} is of the run {name}. Give that name, or the path of a run directory")
    prepare(Wishes(None, config, None, there if os.sep in run else None, command_line))
