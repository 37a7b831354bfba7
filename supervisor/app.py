"""The composition root: the only place that builds real adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import structlog

from policies.rules import Rules
from slurm.local import LocalCluster
from supervisor.clusters import OUTSIDE, open_cluster
from supervisor.controller import Controller, Parts
from supervisor.drill_files import fetched, read_all
from supervisor.errors import OWN_FAULT_EXIT, REFUSED_EXIT, UserError
from supervisor.journal.journal import FencedError, JournalDamagedError
from supervisor.journal.lease import LeaseHeldError
from supervisor.moves import Moves
from supervisor.observe.reads import Reads
from supervisor.reading import Reading
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.stores import archive_of, open_reading, open_store

__all__ = ["OUTSIDE", "build", "log_to_stderr", "supervise"]


def log_to_stderr() -> None:
    """Structlog's lines: for people on a terminal, JSON elsewhere."""
    people = sys.stderr.isatty() or os.environ.get("RELIGHT_LOG") == "text"
    last: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if people else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%f%z", utc=False),  # "iso" would leave the zone out
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def build(run: RunDir, settings: Settings, rules: Rules, job: str = "") -> Parts:
    """Real adapters. `job`: see `clusters.open_cluster`. Raises UserError."""
    opened = open_cluster(run, settings, job)
    crew = Reads()
    by = open_reading(settings, crew)
    store = open_store(run, settings, by)
    moves = Moves()
    return Parts(
        run,
        settings,
        rules,
        opened.cluster,
        store,
        reading=Reading(crew, by),
        listen=opened.listen,
        free_port=opened.free_port,
        archive=archive_of(settings, store, moves),
        moves=moves,
        drilled=lambda: fetched(read_all(run)),
        stops_on_signal=not job,
    )


def supervise(parts: Parts, stop_asked: str = "", *, again: bool = False) -> int:
    """Run one epoch; the exit code. `stop_asked`: who asked for a planned stop before it began. `again`: the one before died.

    A copy or a reading that is still at work is left as it stands, and the process ends here. Raises UserError when
    another controller is at work, or the checkpoint store can't be made.
    """
    try:
        controller = Controller(parts)
        code = asyncio.run(controller.run(stop_asked, again=again))
    except (LeaseHeldError, FencedError) as error:
        raise UserError(str(error), REFUSED_EXIT) from None
    except JournalDamagedError as error:
        raise UserError(f"{parts.run.journal}: {error}. See: relight runbook journal-damaged", OWN_FAULT_EXIT) from None
    if isinstance(
        parts.cluster, LocalCluster
    ):  # the nodes are let go; a controller that was fenced has nothing to take away
        parts.cluster.close()
    controller.lanes.abandon(code)
    return code
