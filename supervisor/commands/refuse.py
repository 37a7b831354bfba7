"""`relight refuse RUN --plan DIGEST`."""

from __future__ import annotations

import click


@click.command(
    "refuse", epilog='\b\nExample:\n  relight refuse demo --plan 8f3a1c --because "n0417 is known to be fine"'
)
@click.argument("run")
@click.option("--plan", "digest", required=True, help="The plan's digest, or its first 6 characters or more.")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, digest: str, why: str) -> int:
    """Say no to the open plan of RUN, with a reason. The run halts until `relight resume`."""
    from supervisor.commands.asking import ask, look  # noqa: PLC0415
    from supervisor.errors import UserError  # noqa: PLC0415

    if not digest or set(digest.lower()) - set("0123456789abcdef"):
        raise UserError(f"--plan {digest}: a plan's digest is of the digits 0-9 and a-f. See: relight plan {run}")
    return ask(look(run), "refuse", digest=digest, why=why)
