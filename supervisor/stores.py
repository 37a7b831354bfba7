"""A run's checkpoint store and its archive, opened alike by the controller and by the commands that need no controller."""

from __future__ import annotations

import time

import structlog

from supervisor.checkpoints.archive import Archive, open_archive
from supervisor.checkpoints.archive.carrying import Progress, no_progress
from supervisor.checkpoints.readers_said import Crew
from supervisor.checkpoints.readers_store import StoreReading, by_agents
from supervisor.checkpoints.store import PosixStore
from supervisor.run_spec import spec_of
from supervisor.rundir import RunDir
from supervisor.settings import Settings

LOCAL_SETTLE_S = 1.0
"""A local file system shows a file at once; what the ranks write beside a save may come a moment after its metadata."""


def root_of(run: RunDir, settings: Settings) -> str:
    """The store's folder. `[checkpoints] dir` was made absolute when the settings were frozen."""
    return settings.checkpoints.dir or run.path("checkpoints")


def open_reading(settings: Settings, crew: Crew) -> StoreReading:
    """How the controller reads: what is large by the agents of nodes, where they may."""
    wanted = settings.checkpoints
    log = structlog.get_logger()

    def tell(line: str, wrong: bool) -> None:
        (log.warning if wrong else log.info)("reading", text=line)

    return by_agents(
        crew, tell, wanted.read_threads or None, wanted.read_mb_s * 1e6 or None, int(wanted.spread_mb * 1e6)
    )


def open_store(run: RunDir, settings: Settings, by: StoreReading | None = None) -> PosixStore:
    """The store of a run; nothing is made or read yet. `by`: who reads; None: threads of this process."""
    reading = settings.checkpoints
    return PosixStore(
        root_of(run, settings),
        settings.shape().world,
        time.time,
        settle_s=LOCAL_SETTLE_S,
        threads=reading.read_threads or None,
        rate=reading.read_mb_s * 1e6 or None,
        spec=spec_of(run.root, reading),
        reading=by,
    )


def archive_of(settings: Settings, store: PosixStore, progress: Progress = no_progress) -> Archive | None:
    """The archive of a run; None where the settings name none. Nothing is made or read yet. Raises UserError."""
    place = settings.archive.place
    return open_archive(place, settings.run.name, store, time.time, progress=progress) if place else None
