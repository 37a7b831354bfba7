"""`relight halt RUN`."""

from __future__ import annotations

import click


@click.command("halt", epilog='\b\nExample:\n  relight halt demo --because "a switch is being replaced"')
@click.argument("run")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, why: str) -> int:
    """Stop the attempt of RUN and start nothing more until `relight resume`."""
    from supervisor.commands.asking import ask, look  # noqa: PLC0415

    return ask(look(run), "halt", why=why)
