"""`relight resume RUN`."""

from __future__ import annotations

import click


@click.command(
    "resume",
    epilog="""\b
Examples:
  relight resume demo --because "a switch is being replaced"
  relight resume demo --keep-node n0417 --because "the cable was reseated"
  relight resume demo --skip-samples 4293000:4301192 --because "broken shard 17\"""",
)
@click.argument("run")
@click.option("--because", "why", default="", help="Your reason; it is kept in the journal. Needed for a halt.")
@click.option(
    "--skip-samples", "skip", multiple=True, metavar="FIRST:END", help="Leave these samples out from here on."
)
@click.option("--keep-node", "keep", multiple=True, metavar="NODE", help="Do not bar this node for this incident.")
def command(run: str, why: str, skip: tuple[str, ...], keep: tuple[str, ...]) -> int:
    """Lift a pause or a halt of RUN. Lifting a halt takes a reason."""
    from supervisor.commands.asking import ask, look, spans  # noqa: PLC0415

    return ask(look(run), "resume", why=why, skip_samples=spans(skip), keep_nodes=keep)
