"""Which job these logs are of, and which lines tell of another one: logs of a whole cluster lie beside those of a job. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from supervisor.evidence.clocks import is_kernel
from supervisor.evidence.reading import FileReading

_TOLD: Final = re.compile(
    r"\b(?:JobId|StepId|job_?id|SLURM_JOB_?ID)[= ](\d{2,12})|\*\*\* (?:JOB|STEP) (\d{2,12})|\b(?:batch )?job (\d{3,12})\b",
    re.IGNORECASE,
)
_WORDS: Final = ("Job", "JOB", "Step", "STEP", "job")
_IN_NAME: Final = re.compile(r"(?<![A-Za-z0-9])(\d{3,12})(?![A-Za-z0-9])")


def told_job(text: str) -> str | None:
    """The job that a line is about: the first that it names (`preempted JobId=3 ... to reclaim resources for JobId=7`)."""
    if not any(word in text for word in _WORDS):  # most lines name no job, and thousands of ranks may say the same
        return None
    match = _TOLD.search(text)
    return None if match is None else match[match.lastindex or 1]


def own_jobs(readings: Sequence[FileReading]) -> frozenset[str]:
    """The numbers of the job: those that its own logs tell; else those in names of files of which the scheduler speaks."""
    own = {job for r in readings if not is_kernel(r) for raw in r.raws if (job := told_job(raw.text)) is not None}
    if own:
        return frozenset(own)
    named = {job for r in readings for job in _IN_NAME.findall(os.path.basename(r.name))}
    spoken = {job for r in readings for raw in r.raws if (job := told_job(raw.text)) is not None}
    return frozenset(named & spoken)


def without_other_jobs(readings: Sequence[FileReading]) -> list[FileReading]:
    """The same readings, less what logs of the machines and of the scheduler tell of other jobs. All, where no job is known."""
    own = own_jobs(readings)
    if not own:
        return list(readings)
    return [
        replace(r, raws=[raw for raw in r.raws if told_job(raw.text) in {None, *own}]) if is_kernel(r) else r
        for r in readings
    ]
