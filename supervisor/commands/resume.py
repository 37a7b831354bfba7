"""`relight resume RUN`."""

from __future__ import annotations

import click


@click.command("resume", epilog='\b\nExample:\n  relight resume demo --because "a switch is being replaced"')
@click.argument("run")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, why: str) -> int:
    """Lift a pause or a halt of RUN. Lifting a halt takes a reason."""
    from supervisor.commands.asking import ask, look  # noqa: PLC0415

    return ask(look(run), "resume", why=why)
