"""`relight refuse RUN --plan PLAN`."""

from __future__ import annotations

import click


@click.command(
    "refuse", epilog='\b\nExample:\n  relight refuse demo --plan 8f3a1c --because "n0417 is known to be fine"'
)
@click.argument("run")
@click.option("--plan", "digest", required=True, help="The plan's id, 6 characters or more of it.")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal. It has to be given.")
def command(run: str, digest: str, why: str) -> int:
    """Say no to the open plan of RUN, with a reason. The run halts until `relight resume`."""
    from supervisor.commands.asking import ask, look, plan_id  # noqa: PLC0415

    plan = plan_id(run, digest)
    return ask(look(run), "refuse", digest=plan, why=why)
