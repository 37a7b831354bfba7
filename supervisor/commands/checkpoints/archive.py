"""`relight checkpoints archive RUN [ID]`."""

from __future__ import annotations

import sys
import time

import click

from supervisor.errors import NOT_YET_EXIT, NotRestorable, UserError


@click.command(
    "archive",
    epilog="""\b
Examples:
  relight checkpoints archive demo
  relight checkpoints archive demo a0003-i0000040
  relight checkpoints archive demo --make

\b
The place is `[archive] place` of the run's settings. What is there already is
read again and not written; a copy that was interrupted goes on. The run's
journal, settings and incidents are brought up to date there too.
Exit codes: 0 there and verified, 1 the save is no longer what was sealed,
3 not now: the archive or the store can't be read, or the save is not completed.""",
)
@click.argument("run")
@click.argument("checkpoint", metavar="[ID]", required=False)
@click.option(
    "--make", is_flag=True, help="Make the archive first; else a place that is none yet, or is away, is refused."
)
def command(run: str, checkpoint: str | None, make: bool) -> int:
    """Copy a completed save of RUN into its archive now; without ID, the newest."""
    from policies.retention import by_age  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.commands.checkpoints.opening import find, open_run, settled  # noqa: PLC0415
    from supervisor.telling.say import clean, size, span  # noqa: PLC0415
    from supervisor.telling.watched import watched  # noqa: PLC0415

    opened = open_run(run)
    accounts = opened.accounts()
    if checkpoint is not None:
        state = find(accounts, checkpoint, run).state
    else:
        done = by_age(one.state for one in accounts.saves)
        if not done:
            raise UserError(f"{run}: no save is completed yet. See: relight checkpoints list {run}", NOT_YET_EXIT)
        state = done[-1]
    place = opened.seen.settings.archive.place
    began = time.monotonic()
    with watched("archive", quiet=not sys.stderr.isatty()) as progress:
        archive = opened.must_have_archive(progress)
        if make:
            settled(archive.make, f"{place} can't be made an archive")
        try:
            settled(lambda: archive.copy(state.id), f"{state.id} is not in the archive")
        except NotRestorable as error:
            click.echo(f"{state.id}: not archived: {clean(str(error))}")
            return NOT_YET_EXIT if error.not_yet else 1
        sent = settled(
            lambda: archive.keep_record(opened.seen.run.root), f"{state.id} is there; the run's record is not"
        )
    took = span(round(time.monotonic() - began, 1))
    click.echo(f"{state.id}: in the archive {clean(place)}, {size(state.bytes)} in {took}, each file read again there")
    click.echo(f"Record of the run: {size(sent)} sent." if sent else "Record of the run: as it was.")
    return 0
