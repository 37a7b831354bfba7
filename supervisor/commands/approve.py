"""`relight approve RUN --plan PLAN`."""

from __future__ import annotations

import click


@click.command("approve", epilog="\b\nExample:\n  relight approve demo --plan 8f3a1c")
@click.argument("run")
@click.option("--plan", "digest", required=True, help="The plan's id, 6 characters or more of it.")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, digest: str, why: str) -> int:
    """Say yes to the open plan of RUN. Exit 4: that plan is no longer open; 3: nobody is there to hear it."""
    from supervisor.commands.asking import ask, look, plan_id  # noqa: PLC0415

    plan = plan_id(run, digest)
    return ask(look(run), "approve", digest=plan, why=why)
