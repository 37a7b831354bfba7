"""`relight checkpoints recover PLACE NAME`."""

from __future__ import annotations

import os

import click


@click.command(
    "recover",
    epilog="""\b
Examples:
  relight checkpoints recover s3://bucket/prefix demo
  relight checkpoints recover /archive demo --run-dir /shared/runs/demo

\b
For a run whose directory is lost: journal, settings, incidents and drills come
back from the archive at PLACE, and an empty checkpoint store is made. Then start
the run as before: it goes on from the newest save in the archive, which is
copied back and checked first. Nothing that is there is overwritten.
Exit codes: 0 done, 2 bad usage, or a run is there already, 3 the archive can't be read now.""",
)
@click.argument("place")
@click.argument("name")
@click.option("--run-dir", type=click.Path(), help="Default: ./relight-runs/NAME.")
def command(place: str, name: str, run_dir: str | None) -> int:
    """Bring the directory of run NAME back from its archive."""
    from policies.facts import CheckpointPhase  # noqa: PLC0415 - `relight --help` need not wait for it
    from slurm.cluster import Unreadable  # noqa: PLC0415
    from supervisor.checkpoints.archive import recover_record  # noqa: PLC0415
    from supervisor.commands.checkpoints.opening import open_run, settled  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.telling.say import clean, size  # noqa: PLC0415

    root = os.path.abspath(run_dir or os.path.join("relight-runs", name))
    away = f"{place}: the record of {name} can't be read now"
    files = settled(lambda: recover_record(place, name, root), away)
    RunDir(root).create()
    opened = open_run(root)
    settled(opened.store.create, f"{root}: the checkpoint store can't be made")
    click.echo(f"{clean(root)}: {len(files)} files are back.")
    archive = opened.archive()
    states = archive.scan() if archive is not None else ()
    if isinstance(states, Unreadable):
        click.echo(f"Copies in the archive can't be seen now: {clean(states.why)}")
        return 0
    done = [s for s in states if s.phase is CheckpointPhase.COMPLETED]
    newest = f"{done[-1].id}, {size(done[-1].bytes)}" if done else "none is completed"
    click.echo(f"Copies in the archive: {len(states)}; newest {newest}. Start the run as before: `relight run ...`.")
    return 0
