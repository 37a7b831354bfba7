"""`relight checkpoints restore RUN [ID]`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from supervisor.errors import NOT_YET_EXIT, NotRestorable, UserError

if TYPE_CHECKING:
    from policies.facts import CheckpointState
    from slurm.cluster import Unreadable


@click.command(
    "restore",
    epilog="""\b
Examples:
  relight checkpoints restore demo
  relight checkpoints restore demo a0003-i0000040
  relight checkpoints restore demo --make

\b
A controller does this by itself where its store has nothing to start from. By
hand it is for a store that is lost for good: with --make an empty one is made
first, and the controller goes on when the copy is there. Never use --make while
the store may only be away. What was begun is finished; nothing is overwritten.
Exit codes: 0 there, each file checked; 1 the copy is damaged, or there is none;
3 not now: the archive or the store can't be read, or there is no room.""",
)
@click.argument("run")
@click.argument("checkpoint", metavar="[ID]", required=False)
@click.option("--make", is_flag=True, help="The store is lost for good: make an empty one first.")
@click.option("--again", is_flag=True, help="Read a copy once more that was found damaged, as on another machine.")
def command(run: str, checkpoint: str | None, make: bool, again: bool) -> int:
    """Bring a save of RUN back from its archive; without ID, the newest that is whole there."""
    from policies.facts import CheckpointPhase  # noqa: PLC0415
    from supervisor.commands.checkpoints.opening import open_run, save_id, settled  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.telling.say import clean, size, span  # noqa: PLC0415
    from supervisor.telling.watched import watched  # noqa: PLC0415

    opened = open_run(run)
    began = time.monotonic()
    with watched("restore", quiet=not sys.stderr.isatty()) as progress:
        archive = opened.must_have_archive(progress)
        wanted = save_id(checkpoint) if checkpoint is not None else _newest(archive.scan(), run)
        if make:
            settled(opened.store.create, f"{run}: the checkpoint store can't be made")
        seen = opened.store.scan()
        if not isinstance(seen, tuple):
            lost = "if it is lost for good, --make makes an empty one"
            raise UserError(f"{run}: the checkpoint store can't be read now: {seen.why}; {lost}", NOT_YET_EXIT)
        whole = any(c.id == wanted and c.phase is CheckpointPhase.COMPLETED for c in seen)
        before = settled(lambda: opened.store.place(wanted), wanted).data if whole else None
        try:
            settled(lambda: archive.restore(wanted, again=again), f"{wanted} is not back")
        except NotRestorable as error:
            click.echo(f"{wanted}: not restored: {clean(str(error))}")
            return NOT_YET_EXIT if error.not_yet else 1
    state = opened.store.state(wanted)
    where = settled(lambda: opened.store.place(wanted), wanted).data
    if where == before:
        click.echo(f"{wanted}: nothing to bring back: it is whole, {size(state.bytes)}: {clean(where)}")
        return 0
    took = span(round(time.monotonic() - began, 1))
    click.echo(f"{wanted}: {state.phase}, {size(state.bytes)} in {took}: {clean(where)}")
    return 0


def _newest(seen: tuple[CheckpointState, ...] | Unreadable, run: str) -> str:
    """The newest copy that is whole. Raises UserError."""
    from policies.retention import by_age  # noqa: PLC0415

    if not isinstance(seen, tuple):
        raise UserError(f"{run}: the archive can't be read now: {seen.why}", NOT_YET_EXIT)
    done = by_age(seen)
    if not done:
        raise UserError(f"{run}: no copy in the archive is whole. See: relight checkpoints list {run}", 1)
    return done[-1].id
