"""`relight pause RUN`."""

from __future__ import annotations

import click


@click.command("pause", epilog='\b\nExample:\n  relight pause demo --because "a switch is being replaced"')
@click.argument("run")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, why: str) -> int:
    """Pause RUN: it watches, keeps evidence, seals and tells; it starts and stops nothing."""
    from supervisor.commands.asking import ask, look  # noqa: PLC0415

    return ask(look(run), "pause", why=why)
