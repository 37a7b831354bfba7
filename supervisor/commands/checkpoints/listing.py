"""`relight checkpoints list RUN`."""

from __future__ import annotations

import json

import click

from supervisor.errors import NOT_YET_EXIT


@click.command(
    "list",
    epilog="""\b
Examples:
  relight checkpoints list demo
  relight checkpoints list demo --all
  relight checkpoints list ./relight-runs/demo --json

\b
Nothing is read but names and manifests. Exit 3: the store, or the archive,
can't be read now.""",
)
@click.argument("run")
@click.option("--all", "every", is_flag=True, help="Deleted ones by name too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(run: str, every: bool, as_json: bool) -> int:
    """Every save of RUN, newest first: where it stands, and what it is kept for."""
    from slurm.cluster import Unreadable  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.commands.checkpoints.opening import open_run  # noqa: PLC0415
    from supervisor.telling.saves import listing_json, listing_text  # noqa: PLC0415

    told = open_run(run).listing()
    if as_json:
        click.echo(json.dumps(listing_json(told)))
    else:
        click.echo(listing_text(told, every=every), nl=False)
    hidden = told.archive is not None and isinstance(told.archive.saves, Unreadable)
    return NOT_YET_EXIT if hidden else 0
