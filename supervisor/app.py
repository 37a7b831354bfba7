"""The composition root: the only place that builds real adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

import structlog

from policies.rules import Rules
from slurm.local import LocalCluster
from supervisor.checkpoints.store import PosixStore
from supervisor.controller import Controller, Parts
from supervisor.errors import OWN_FAULT_EXIT, UserError
from supervisor.journal.journal import FencedError, JournalDamagedError
from supervisor.journal.lease import LeaseHeldError
from supervisor.rundir import RunDir
from supervisor.settings import Settings

FENCED_EXIT = 4
LOCAL_SETTLE_S = 1.0
"""A local file system shows a file at once; what the ranks write beside a save may come a moment after its metadata."""


def log_to_stderr() -> None:
    """Structlog's lines: for people on a terminal, JSON elsewhere."""
    people = sys.stderr.isatty() or os.environ.get("RELIGHT_LOG") == "text"
    last: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if people else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def build(run: RunDir, settings: Settings, rules: Rules) -> Parts:
    """Real adapters for a local cluster. Raises UserError."""
    cluster = LocalCluster(run.root, settings.nodes)
    root = settings.checkpoints.dir or run.path("checkpoints")
    reading = settings.checkpoints
    store = PosixStore(
        root,
        settings.shape().world,
        time.time,
        settle_s=LOCAL_SETTLE_S,
        threads=reading.read_threads or None,
        rate=reading.read_mb_s * 1e6 or None,
    )
    cluster.boot()
    return Parts(run, settings, rules, cluster, store)


def supervise(parts: Parts, stop_asked: str = "", *, again: bool = False) -> int:
    """Run one epoch; the exit code. `stop_asked`: who asked for a planned stop before it began. `again`: the one before died.

    Raises UserError when another controller is at work, or the checkpoint store can't be made.
    """
    try:
        controller = Controller(parts)
        code = asyncio.run(controller.run(stop_asked, again=again))
    except (LeaseHeldError, FencedError) as error:
        raise UserError(str(error), FENCED_EXIT) from None
    except JournalDamagedError as error:
        raise UserError(f"{parts.run.journal}: {error}. See: relight runbook journal-damaged", OWN_FAULT_EXIT) from None
    if isinstance(
        parts.cluster, LocalCluster
    ):  # the nodes are let go; a controller that was fenced has nothing to take away
        parts.cluster.close()
    return code
