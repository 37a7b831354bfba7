"""Waiting for one's turn, while another controller supervises the run."""

from __future__ import annotations

import time

import click

from supervisor.commands.asking import look
from supervisor.errors import HALTED_EXIT
from supervisor.journal.lease import is_alive, read_holder

LOOK_S = 2.0
"""How often the lease is looked at: a file system announces nothing. One of another host counts as gone after 15 s."""


def stand_by(root: str, *, over_jobs: bool = False) -> int | None:
    """Wait while another controller lives; None when it is our turn, else the exit code: the run is over.

    `over_jobs`: a run that has left its job is waited for, until its next job has a controller; for whoever is in the job, it
    is over then.
    """
    said = False
    while True:
        seen = look(root)
        if not seen.alive:
            if seen.history.ended == "next-job" and over_jobs:
                time.sleep(LOOK_S)
                continue
            if seen.history.ended:
                click.echo(f"{seen.history.run}: {seen.history.ended}", err=True)
                return 0
            if seen.history.halted is not None:
                reason = seen.history.halted.reason.value
                click.echo(f"{seen.history.run}: halted ({reason}). See: relight runbook {reason}", err=True)
                return HALTED_EXIT
            return None
        holder = read_holder(seen.run.path("lease"))
        if not said and holder is not None:
            said = True
            click.echo(f"relight: standing by; controller {holder.pid} on {holder.host} is at work", err=True)
        while holder is not None and is_alive(holder, time.time()):
            time.sleep(LOOK_S)
            holder = read_holder(seen.run.path("lease"))
