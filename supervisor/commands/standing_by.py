"""Waiting for one's turn, while another controller supervises the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import click

from slurm.awaited import Awaited, is_awaited
from supervisor.commands.asking import Seen, look
from supervisor.errors import HALTED_EXIT, OWN_FAULT_EXIT, UserError
from supervisor.journal.lease import is_alive, read_holder
from supervisor.journal.requests import pending

LOOK_S = 2.0
"""How often the lease is looked at: a file system announces nothing. One of another host counts as gone after 15 s."""


def stand_by(
    root: str,
    *,
    over_jobs: bool = False,
    pause: Callable[[float], None] = time.sleep,
    awaited: Awaited | None = None,
) -> int | None:
    """Wait while another controller lives; None when it is our turn, else the exit code: the run is over.

    `over_jobs`: a run that has left its job is waited for, until its next job has a controller; for whoever is in the job, it
    is over then. Where no next job was asked for, whoever should have has died (the batch host is lost): it is our turn.
    `awaited`: who knows how the next job stands; default: Slurm.
    """
    said, lost, unread = False, "", ""
    awaited = awaited or Awaited(root)
    while True:
        try:
            seen = look(root)
            holder = read_holder(seen.run.path("lease"))
        except (UserError, OSError) as error:  # in the job to end here would end every rank
            if over_jobs and isinstance(error, UserError) and error.exit_code != OWN_FAULT_EXIT:
                raise
            if str(error) != unread:
                click.echo(f"relight: {error}; it is looked at again", err=True)
            unread = str(error)
            pause(LOOK_S)
            continue
        if not seen.alive:
            if seen.history.ended == "next-job" and over_jobs:
                if _nobody_asked(seen):
                    return None
                if (over := _next_over(seen, awaited)) != lost and over:
                    click.echo(
                        f"relight: {over} and has not taken {seen.history.run} up: nobody goes on with it", err=True
                    )
                lost = over
                pause(LOOK_S)
                continue
            if seen.history.ended:
                click.echo(f"{seen.history.run}: {seen.history.ended}", err=True)
                return 0
            if seen.history.halted is not None and not _is_lifted(seen):
                reason = seen.history.halted.reason.value
                click.echo(f"{seen.history.run}: halted ({reason}). See: relight runbook {reason}", err=True)
                return HALTED_EXIT
            return None
        if not said and holder is not None:
            said = True
            click.echo(f"relight: standing by; controller {holder.pid} on {holder.host} is at work", err=True)
        while holder is not None and is_alive(holder, time.time()):
            pause(LOOK_S)
            with suppress(OSError):
                holder = read_holder(seen.run.path("lease"))


def _is_lifted(seen: Seen) -> bool:
    """Does a person's word wait that ends the halt? A controller has to be there to hear it."""
    return any(one.what == "resume" for one in pending(seen.run.root))


def _next_over(seen: Seen, awaited: Awaited) -> str:
    job = seen.history.job
    return awaited.over(job.id, job.start) if job is not None else ""


def _nobody_asked(seen: Seen) -> bool:
    """Is the run on its way to a next job that nobody has asked for, and that can be had from here?"""
    job = seen.history.job
    if job is None or seen.settings.cluster.next_job not in {"auto", "requeue"}:
        return False  # whoever submits it again must not find the run taken
    return not is_awaited(seen.run.root, job.id, job.start)
