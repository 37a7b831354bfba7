"""`relight guard RUN...`: look at runs from outside of their controllers, and page."""

from __future__ import annotations

import os
import signal
import sys
from threading import Event
from typing import TYPE_CHECKING

import click

from supervisor.errors import UserError

if TYPE_CHECKING:
    from supervisor.rundir import RunDir
    from supervisor.telling.targets import Targets


@click.command(
    "guard",
    epilog="""\b
Examples:
  relight guard demo                         until the run has ended
  relight guard demo --try                   tell everybody once that this is a trial
  relight guard /data/runs/demo --config relight.toml --read-only    on another host

\b
`relight run` starts one by itself where [notify] names anybody. It says each matter once, and when all is well again.""",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--config", type=click.Path(), help="Whom to tell: [notify] of these settings instead of the run's own.")
@click.option("--read-only", is_flag=True, help="Do not try whether the journal can be written; leave no lock.")
@click.option("--detach", is_flag=True, help="In the background, with guard.log in the run directory.")
@click.option("--try", "trial", is_flag=True, help="Send a trial to everybody, say how it went, and end.")
def command(runs: tuple[str, ...], config: str | None, read_only: bool, detach: bool, trial: bool) -> int:
    """Page when a controller of RUN is gone or stands, when its journal or directory is, or when nobody was told. Exit 0: over."""
    from supervisor.app import log_to_stderr  # noqa: PLC0415 - `relight --help` need not wait for it
    from supervisor.guard import watch  # noqa: PLC0415
    from supervisor.rundir import RunDir  # noqa: PLC0415
    from supervisor.settings import read_settings  # noqa: PLC0415
    from supervisor.telling import targets  # noqa: PLC0415

    # Another host may boot before the run's file system is mounted there: then that is what is told.
    elsewhere = read_only and config is not None
    places = [RunDir.of(run) if elsewhere else RunDir.of(run).must_exist() for run in runs]
    given = targets.gather(read_settings(config).notify, config) if config else None
    told = [(run, _name(run), given or targets.read(run.root) or targets.Targets()) for run in places]
    for run, name, whom in told:
        if not whom.any:
            raise UserError(
                f"{run.root}: nobody is to be told of {name}: no [notify] in its settings. See: relight guard --help"
            )
    if trial:
        return max(_try(name, whom) for _, name, whom in told)
    if detach:
        for run, _, _ in told:
            more = [*(("--config", config) if config else ()), *(("--read-only",) if read_only else ())]
            watch.detach([sys.executable, "-m", "supervisor", "guard", run.root, *more], run.path("guard.log"))
        return 0
    log_to_stderr()
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    held, wards = [], []
    for run, name, whom in told:
        try:
            held += [] if read_only else [watch.Lock(run.root)]
        except BlockingIOError:
            click.echo(f"another guard on this host watches {name} already", err=True)
            continue
        wards.append(watch.ward_of(run, name, whom, probes=not read_only))
    watch.guard(wards, stop)
    for lock in held:
        lock.close()
    return 0


def _name(run: RunDir) -> str:
    """As its settings have it; that of its folder where they can't be read."""
    from supervisor.settings import frozen  # noqa: PLC0415

    try:
        return frozen(run.root).run.name
    except UserError:
        return os.path.basename(run.root)


def _try(name: str, whom: Targets) -> int:
    """Tell everybody that this is a trial; 1 where somebody could not be told."""
    from supervisor.telling.courier import by_child  # noqa: PLC0415
    from supervisor.telling.notices import Notice  # noqa: PLC0415

    title = f"relight {name}: a trial, nothing is wrong"
    notice = Notice(
        "trial", "guard", name, title, f"Somebody typed relight guard {name} --try.\nrelight status {name}"
    ).linked(whom.link)
    code, carry = 0, by_child(whom)
    for who, url in whom.named(escalates=True).items():
        outcome = carry(notice, "", url)
        click.echo(f"{who}: {'told' if outcome.ok else f'not told: {outcome.why}'}")
        code = code if outcome.ok else 1
    return code
