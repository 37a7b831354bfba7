"""`relight status RUN`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click

from supervisor.errors import UserError

FOLDER = "relight-runs"


@click.command(
    "status",
    epilog="""\b
Examples:
  relight status                 the runs below ./relight-runs, one line each
  relight status demo
  relight status ./relight-runs/demo --json""",
)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(run: str | None, as_json: bool) -> int:
    """What RUN is doing now. Exit 0: at work or ended well; 1: halted; 3: no controller is alive.

    Without RUN: which runs there are. Exit 0; 2: none.
    """
    if run is None:
        return _all(as_json=as_json)
    from policies.reasons import Reason  # noqa: PLC0415
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.drill_files import read_all  # noqa: PLC0415
    from supervisor.journal.requests import pending  # noqa: PLC0415
    from supervisor.telling.drills import drills_line  # noqa: PLC0415
    from supervisor.telling.due import LOOK_SOON  # noqa: PLC0415
    from supervisor.telling.say import clean, sentence  # noqa: PLC0415
    from supervisor.telling.status import VIEW  # noqa: PLC0415
    from supervisor.telling.story import status_text, to_json  # noqa: PLC0415

    seen = look(run)
    status, drills = seen.status, read_all(seen.run)
    if as_json:
        shown = to_json(seen.history, None, seen.known, status.view if status else None)
        shown["controller_alive"] = seen.alive
        shown["drills"] = [one.model_dump(by_alias=True) for one in drills]
        shown["seen"] = (
            {k: v for k, v in asdict(status).items() if k != "view"}
            | {"view": VIEW.dump_python(status.view, mode="json")}
            if status
            else None
        )
        click.echo(json.dumps(shown))
    else:
        click.echo(status_text(seen.history, status.view if status else None, seen.now, seen.known), nl=False)
        if status and status.reason == Reason.NEXT_JOB and seen.history.ended:  # such a wait is not in the journal
            click.echo(f"Waiting: {sentence(status.text)} See: relight runbook {status.reason}")
        if status and status.reason in LOOK_SOON | {Reason.ARCHIVE_BLIND}:
            soon = "It can't go on" if status.decision == "wait" else "Look at it soon"
            click.echo(f"{soon}: {sentence(status.text)} See: relight runbook {status.reason}")
        if filed := [] if seen.alive else pending(seen.run.root):
            said = ", ".join(f"{one.what} ({clean(one.who, 64)})" for one in filed[:8])
            click.echo(f"Filed, for the next controller to answer: {said}.")
        if drills or seen.settings.archive.place:
            click.echo(drills_line(drills, seen.now))
    if seen.history.halted:
        return 1
    return 0 if seen.alive or seen.history.ended else 3


def _all(*, as_json: bool) -> int:
    """The runs below ./relight-runs, one line each. Raises UserError where there is none."""
    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.telling.say import clean  # noqa: PLC0415
    from supervisor.telling.story import standing  # noqa: PLC0415

    shown = []
    for name in sorted(os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []:
        path = os.path.join(FOLDER, name)
        if os.path.isdir(os.path.join(path, "journal")):
            try:
                seen = look(path)
                shown.append({"run": name, "standing": standing(seen.history, seen.known)})
            except UserError as error:
                shown.append({"run": name, "standing": f"can't be read: {error}"})
    if not shown:
        raise UserError(f"no run is below ./{FOLDER}. Give a run's directory: relight status DIR")
    if as_json:
        click.echo(json.dumps({"schema": 1, "runs": shown}))
    else:
        click.echo("\n".join(f"{clean(row['run'], 64)}: {clean(row['standing'], 500)}" for row in shown))
    return 0
