"""`relight checkpoints pin RUN ID --why TEXT`."""

from __future__ import annotations

import click

from supervisor.errors import UserError


@click.command(
    "pin",
    epilog="""\b
Examples:
  relight checkpoints pin demo a0003-i0000040 --why "before the new data"

\b
A pinned save is never deleted, and is not one of those that are kept by
number. See: relight checkpoints unpin""",
)
@click.argument("run")
@click.argument("checkpoint", metavar="ID")
@click.option("--why", required=True, metavar="TEXT", help="For whoever finds it later.")
def command(run: str, checkpoint: str, why: str) -> int:
    """Keep a save of RUN until somebody unpins it."""
    from supervisor.checkpoints import pins  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.commands.asking import who  # noqa: PLC0415
    from supervisor.commands.checkpoints.opening import find, open_run, settled  # noqa: PLC0415
    from supervisor.telling.saves import pin_text  # noqa: PLC0415

    if not why.strip() or len(why) > pins.WHY_MAX:
        raise UserError(f"--why: say it in 1 to {pins.WHY_MAX} characters")
    opened = open_run(run)
    wanted = find(opened.accounts(), checkpoint, run).state.id
    try:
        made = settled(lambda: opened.store.pin(wanted, why, who()), f"{wanted} is not pinned")
    except pins.BeingDeletedError as error:
        raise UserError(f"{error} at this moment. See: relight checkpoints list {run}") from None
    found = settled(lambda: pins.read(opened.tree, wanted), wanted)
    standing = pin_text(found) if found is not None else "pinned"
    click.echo(f"{wanted}: {standing}" if made else f"{wanted}: was {standing}")
    return 0
