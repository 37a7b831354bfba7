"""`relight plan RUN`: the open plan, and changes to it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command(
    "plan",
    epilog="""\b
Examples:
  relight plan demo
  relight plan demo --checkpoint a0001-i0000040
  relight plan demo --spare n005 --keep-node n001""",
)
@click.argument("run")
@click.option("--checkpoint", default="", metavar="ID", help="Start from this completed checkpoint instead.")
@click.option("--spare", "spares", multiple=True, metavar="NODE", help="Use this spare first. May be given again.")
@click.option("--keep-node", "keep_nodes", multiple=True, metavar="NODE", help="Do not bar this node.")
@click.option(
    "--skip-samples", "skip", multiple=True, metavar="FIRST:END", help="Leave these samples out from here on."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    run: str,
    checkpoint: str,
    spares: tuple[str, ...],
    keep_nodes: tuple[str, ...],
    skip: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the open plan of RUN, or change it. Exit 3: no plan is open."""
    from policies.decisions import Recover  # noqa: PLC0415
    from supervisor.commands.asking import ask, look, spans  # noqa: PLC0415
    from supervisor.telling.plan_page import plan_json, plan_text  # noqa: PLC0415

    seen = look(run)
    left_out = spans(skip)
    if checkpoint or spares or keep_nodes or left_out:
        return ask(seen, "choose", checkpoint=checkpoint, spares=spares, keep_nodes=keep_nodes, skip_samples=left_out)
    history, known = seen.history, seen.known_with_saves
    decision = history.decision
    open_plan = isinstance(decision, Recover) and decision.incident is not None
    if as_json:
        plan = {**asdict(decision), "digest": history.decision_digest} if isinstance(decision, Recover) else None
        page = plan_json(history, known) if open_plan else None
        shown = {"schema": 1, "run": history.run, "plan": plan if open_plan else None, "page": page}
        click.echo(json.dumps({**shown, "controller_alive": seen.alive}))
    elif open_plan:
        click.echo(plan_text(history, known), nl=False)
        if not seen.alive:
            click.echo(f"No controller is alive: what you answer waits for the next one. See: relight status {run}")
    else:
        click.echo(f"No plan is open. See: relight status {history.run}")
    return 0 if open_plan else 3
