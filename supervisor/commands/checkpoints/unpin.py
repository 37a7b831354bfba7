"""`relight checkpoints unpin RUN ID`."""

from __future__ import annotations

import click


@click.command(
    "unpin",
    epilog="""\b
Examples:
  relight checkpoints unpin demo a0003-i0000040

\b
Retention may delete it from then on, if newer completed ones are enough.""",
)
@click.argument("run")
@click.argument("checkpoint", metavar="ID")
def command(run: str, checkpoint: str) -> int:
    """Take the pin off a save of RUN. Exit 1: it was not pinned."""
    from supervisor.commands.checkpoints.opening import open_run, save_id, settled  # noqa: PLC0415

    opened = open_run(run)
    wanted = save_id(checkpoint)
    taken = settled(lambda: opened.store.unpin(wanted), f"{wanted} keeps its pin")
    click.echo(f"{wanted}: unpinned" if taken else f"{wanted}: was not pinned")
    return 0 if taken else 1
