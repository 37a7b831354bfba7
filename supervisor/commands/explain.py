"""`relight explain RUN [INCIDENT]`."""

from __future__ import annotations

import json

import click

from supervisor.errors import UserError


@click.command(
    "explain", epilog="\b\nExamples:\n  relight explain demo\n  relight explain demo 2\n  relight explain demo 2 --json"
)
@click.argument("run")
@click.argument("incident", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(run: str, incident: int | None, as_json: bool) -> int:
    """Tell the story of RUN, or of one of its incidents."""
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.telling.story import incident_story, run_story, to_json  # noqa: PLC0415

    seen = look(run)
    view = seen.status.view if seen.status else None
    try:
        if as_json:
            click.echo(json.dumps(to_json(seen.history, incident, seen.known, view)))
        elif incident is None:
            click.echo(run_story(seen.history, seen.known, view), nl=False)
        else:
            click.echo(incident_story(seen.history, incident, seen.known), nl=False)
    except LookupError as error:
        raise UserError(str(error.args[0])) from None
    return 0
