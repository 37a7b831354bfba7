"""`relight replay JOURNAL|RUN`: each decision again, from the journal alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from supervisor.journal.entries import Stamped
    from supervisor.replay import Again


@click.command(
    "replay",
    epilog="\b\nExamples:\n  relight replay demo\n  relight replay demo --profile approve\n  relight replay /data/journal --json",
)
@click.argument("journal")
@click.option("--profile", default=None, help="Decide by this profile instead, and show what would differ.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(journal: str, profile: str | None, as_json: bool) -> int:
    """Make each decision of RUN or of a JOURNAL folder again. Exit 1: without --profile, one comes out another way."""
    from supervisor import replay as work  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.errors import UserError  # noqa: PLC0415
    from supervisor.profiles import load_profile  # noqa: PLC0415

    rules = load_profile(profile) if profile else None
    try:
        found = list(work.replay(_read(journal), rules))
    except work.NotReplayableError as error:
        raise UserError(f"{journal}: {error}", 3) from None
    differing = sum(not one.same for one in found)
    if as_json:
        told = [work.as_json(one) for one in found]
        click.echo(json.dumps({"schema": 1, "profile": profile, "differing": differing, "decisions": told}))
    else:
        for one in found:
            click.echo("\n".join(_lines(one, profile)))
        under = f" under {profile}" if profile else ""
        click.echo(f"{len(found)} decisions made again{under}: {differing} differ.")
    return 1 if differing and profile is None else 0


def _read(name: str) -> list[Stamped]:
    """The entries of a run, or of a folder of segments. Raises UserError."""
    from supervisor.commands.asking import entries_of  # noqa: PLC0415
    from supervisor.journal import journal  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415

    return entries_of(name if os.path.isdir(name) and journal.segments(name) else RunDir.of(name).must_exist().journal)


def _lines(one: Again, profile: str | None) -> list[str]:
    from supervisor.replay import told  # noqa: PLC0415
    from supervisor.telling.say import clean, stamp  # noqa: PLC0415

    head = f"{stamp(one.at, None)}  entry {one.number}: {told(one.was)}{_did(one.was_done)}"
    if one.same:
        return [f"{head}. Same."]
    lines = [f"{head}. {f'Under {clean(profile, 64)}' if profile else 'Now'}: {told(one.now)}{_did(one.now_done)}"]
    if one.differs != ("kind",):
        pairs = ((name, getattr(one.was, name), getattr(one.now, name)) for name in one.differs)
        lines += [f"          {name}: {clean(str(was), 160)} -> {clean(str(now), 160)}" for name, was, now in pairs]
    return lines


def _did(done: str) -> str:
    return f", {done}" if done else ""
