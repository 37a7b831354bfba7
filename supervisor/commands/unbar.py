"""`relight unbar RUN NODE...`."""

from __future__ import annotations

import click


@click.command(
    "unbar",
    epilog="""\b
Examples:
  relight unbar demo n3
  relight unbar llm500b n0417 'n[0431-0432]' --because "board replaced, ticket 4711"

\b
For a node that is barred and was repaired since. Its bar is lifted, and our own drain
of it in Slurm; a drain of somebody else stays. Nothing is believed of it: it is a spare
again once its checks pass, the last to be used, in the next job where this one has
lost it. What it did before stays known: barred again soon, it is barred for good.
Of the open plan, before it is barred: relight plan RUN --keep-node NODE.""",
)
@click.argument("run")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal.")
def command(run: str, nodes: tuple[str, ...], why: str) -> int:
    """Lift the bar of nodes of RUN that were repaired."""
    from slurm.hostlist import expand  # noqa: PLC0415
    from supervisor.answers import not_barred  # noqa: PLC0415
    from supervisor.commands.asking import ask, look  # noqa: PLC0415
    from supervisor.errors import UserError  # noqa: PLC0415

    try:
        named = tuple(name for one in nodes for name in expand(one))
    except ValueError as error:
        raise UserError(f"NODE: {error}. Wanted a name, or names as Slurm prints them: n[001-003]") from None
    seen = look(run)
    why_not = "" if seen.alive else not_barred(named, seen.history.barred(seen.now))
    if why_not:  # nobody would be told of the refusal, when the next controller gives it
        raise UserError(why_not)
    return ask(seen, "unbar", nodes=named, why=why)
