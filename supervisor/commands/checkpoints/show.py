"""`relight checkpoints show RUN ID`, and `show PATH` for what no run knows of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from supervisor.checkpoints.account import Account
    from supervisor.checkpoints.manifest import Manifest


@click.command(
    "show",
    epilog="""\b
Examples:
  relight checkpoints show demo a0003-i0000040
  relight checkpoints show demo a0003-i0000040 --spec spec.json
  relight checkpoints show /ckpt/iter_0041200
  relight checkpoints show /ckpt/iter_0041200 --spec spec.json
  relight checkpoints show spec.json

\b
With RUN and ID: its manifest, what was checked, counters, reasons, pins and
copies. With a path alone: what the save there holds, or a spec asks for. Only
metadata is read; `relight verify --spec` reads every byte as well.
With --spec, exit codes: 0 all as asked, 1 differences, 3 it can't be read now.""",
)
@click.argument("place", metavar="RUN|PATH")
@click.argument("checkpoint", metavar="[ID]", required=False)
@click.option("--spec", "spec_path", type=click.Path(), help="Lay it beside what it must hold, item by item.")
@click.option("--json", "as_json", is_flag=True, help="For programs; for a path only with --spec.")
def command(place: str, checkpoint: str | None, spec_path: str | None, as_json: bool) -> int:
    """Show one save of RUN, or what lies at PATH, item by item."""
    from supervisor.commands.checkpoints.held import show_path  # noqa: PLC0415 - `relight --help` need not wait for it

    if checkpoint is None:
        return show_path(place, spec_path, as_json=as_json)
    from supervisor.commands.checkpoints.opening import find, open_run  # noqa: PLC0415
    from supervisor.telling.saves import save_json, save_text  # noqa: PLC0415

    opened = open_run(place)
    told = opened.listing()
    account = find(told.accounts, checkpoint, place)
    if spec_path is not None:
        return show_path(account.data, spec_path, as_json=as_json)
    manifest, why = _manifest(opened.tree.root, account)
    if as_json:
        click.echo(json.dumps(save_json(told, account, manifest)))
    else:
        click.echo(save_text(told, account, manifest), nl=False)
        if why:
            click.echo(f"Manifest: {why}")
    return 0


def _manifest(root: str, account: Account) -> tuple[Manifest | None, str]:
    """What was sealed, also of a save that was condemned since; or why it can't be shown ("": there is none)."""
    from supervisor.checkpoints import places, posix  # noqa: PLC0415
    from supervisor.checkpoints.manifest import MANIFEST_LIMIT, UnsoundError, parse_manifest  # noqa: PLC0415
    from supervisor.checkpoints.tree import SaveId, Tree  # noqa: PLC0415
    from supervisor.telling.say import clean  # noqa: PLC0415

    save = SaveId.parse(account.state.id)
    try:
        place = places.find(Tree(root), save)
        return parse_manifest(save, posix.read_bounded(place.mark("manifest.json"), MANIFEST_LIMIT)), ""
    except FileNotFoundError:
        return None, ""
    except UnsoundError as error:
        return None, clean(str(error))
    except OSError as error:
        return None, posix.why(error)
