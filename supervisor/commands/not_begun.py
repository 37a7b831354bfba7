"""A job that can't take its run up: nobody sits before it, so it is told as what halts a run is."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from slurm.jobs import SUBMISSION, Submission
from supervisor.commands.asking import look
from supervisor.telling import targets
from supervisor.telling.courier import by_child
from supervisor.telling.notices import Notice
from supervisor.telling.say import clean, sentence

if TYPE_CHECKING:
    from supervisor.errors import UserError
    from supervisor.rundir import RunDir
    from supervisor.settings import Settings


def stopped_before(run: RunDir, settings: Settings) -> bool:
    """Was the run stopped by somebody after this job was asked for, and before it began? Then they meant this job too.

    A job that a person submits goes on with a run that was stopped, and so does one that is requeued.
    """
    told = Submission.read(os.environ.get(SUBMISSION, "{}"))
    if settings.cluster.kind != "slurm" or told is None or not told.follows:
        return False
    history = look(run.root).history
    return history.ended == "stopped" and history.job is not None and history.job.id == told.follows


def tell(run: RunDir, settings: Settings, error: UserError) -> None:
    """Tell everybody why this job does not run it; nobody where there is no job, or somebody sees it on a terminal."""
    job, whom = os.environ.get("SLURM_JOB_ID", ""), targets.read(run.root)
    if settings.cluster.kind != "slurm" or not job or whom is None or sys.stderr.isatty():
        return
    name = clean(settings.run.name, 64)
    title = f"relight {name}: job {clean(job, 20)} can't take it up"
    so = "This job does not go on with it. Mend that, and submit the job script again."
    body = f"{sentence(str(error))}\n{so}\nRead: relight runbook next-job"
    notice = Notice(f"not-begun:{job}", "guard", settings.run.name, title, body, escalates=True).linked(whom.link)
    carry = by_child(whom)
    for who, url in whom.named(escalates=True).items():
        outcome = carry(notice, "", url)
        if not outcome.ok:
            click.echo(f"relight: {who} was not told of it: {outcome.why}", err=True)
