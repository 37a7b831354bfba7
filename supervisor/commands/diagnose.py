"""`relight diagnose DIR`: the first cause in a folder of logs, of any job."""

from __future__ import annotations

import json

import click

from supervisor.errors import UserError


@click.command(
    "diagnose",
    epilog="""\b
Examples:
  relight diagnose logs/8123
  relight diagnose --json logs/8123
  relight diagnose --layout layout.json logs/8123
  relight diagnose --site our-lines.toml logs/8123

\b
Exit codes: 0 the logs could be read, whatever they say; 2 they could not.""",
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--layout", type=click.Path(), help='JSON: {"nodes": [...], "ranks_per_node": 8, "world_size": 64}.')
@click.option("--site", type=click.Path(), help="TOML: your own kinds of lines, see docs/diagnosis.md.")
@click.option(
    "--traces",
    is_flag=True,
    help="Have NVRx's analyser read NCCL flight-recorder dumps that are pickles. That runs what is in them: use it only on"
    " dumps of your own jobs. (JSON dumps are always read.)",
)
def command(folder: str, as_json: bool, layout: str | None, site: str | None, traces: bool) -> int:
    """Find the earliest error in the logs below DIR (or in one file), not the loudest."""
    from supervisor.evidence.analyser import find  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.evidence.folder import as_json as answer  # noqa: PLC0415
    from supervisor.evidence.folder import diagnose_folder, read_layout  # noqa: PLC0415
    from supervisor.evidence.reading import Reader  # noqa: PLC0415
    from supervisor.evidence.site import site_table  # noqa: PLC0415
    from supervisor.evidence.tell import story  # noqa: PLC0415

    analyser = find() if traces else None
    if traces and analyser is None:
        raise UserError("--traces: NVRx is not there (make setup, or pip install nvidia-resiliency-ext)")
    given = read_layout(layout) if layout is not None else None
    reader = Reader(site_table(site)) if site is not None else None
    try:
        found = diagnose_folder(folder, given, reader, analyser)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror or error}") from None
    click.echo(json.dumps(answer(found)) if as_json else story(found), nl=as_json)
    return 0
