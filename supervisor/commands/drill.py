"""`relight drill shared|archive RUN`."""

from __future__ import annotations

import signal
import sys

import click


@click.command(
    "drill",
    epilog="""\b
Examples:
  relight drill shared demo
  relight drill archive demo --level update
  relight drill archive demo --level bytes --scratch /scratch/me --json

\b
shared: the newest completed save of the run's store, as a recovery takes it:
        its files are linked into a scratch place and read in full.
archive: the newest copy of the archive, fetched into a scratch place.
--level bytes:  every byte is there and is what was sealed.
--level load:   the run's own command is started from it, until all ranks have loaded.
--level update: until its next update is accepted, as after a recovery.
The run goes on meanwhile and is not touched. load and update need as many
nodes again as the run has: on Slurm, inside a job of their own. The script
sees RELIGHT_DRILL=1.
Exit codes: 0 it went well, 1 it did not, 3 the store or archive can't be read now.""",
)
@click.argument("kind", type=click.Choice(["shared", "archive"]))
@click.argument("run")
@click.option("--level", type=click.Choice(["bytes", "load", "update"]), default="bytes", show_default=True)
@click.option("--checkpoint", default="", metavar="ID", help="This save instead of the newest.")
@click.option("--scratch", default="", type=click.Path(), help="Where; default: below the run directory.")
@click.option("--deadline", type=click.FloatRange(1, 86400), default=3600, show_default=True, metavar="S",
              help="For each of launch, load and update.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the scratch place.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    kind: str, run: str, level: str, checkpoint: str, scratch: str, deadline: float, keep: bool, as_json: bool
) -> int:
    """Try the way back in a scratch place, and keep how long each part took."""
    from typing import cast  # noqa: PLC0415 - `relight --help` need not wait for it

    from supervisor.commands.asking import look  # noqa: PLC0415
    from supervisor.drill_files import FOLDER, Kind, Level  # noqa: PLC0415
    from supervisor.drills.drilling import Wish, drill  # noqa: PLC0415
    from supervisor.telling.drills import drill_text  # noqa: PLC0415
    from supervisor.telling.watched import watched  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda told, _: sys.exit(128 + told))  # as Ctrl-C does: what was begun is ended first
    seen = look(run)
    wish = Wish(cast("Kind", kind), cast("Level", level), checkpoint, scratch, deadline, keep, seen.alive)
    with watched(f"drill {kind}", quiet=as_json or not sys.stderr.isatty()) as progress:
        one = drill(seen.run, seen.settings, wish, lambda part: click.echo(f"{part} ...", err=True), progress)
    if as_json:
        click.echo(one.model_dump_json(by_alias=True, indent=1))
    else:
        click.echo(drill_text(one), nl=False)
        click.echo(f"kept in {seen.run.path(FOLDER, f'{one.number:04d}.json')}")
    return 0 if one.ok else 1
