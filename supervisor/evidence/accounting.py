"""What Slurm's accounting says of the job: tables of `sacct`, by their header line, and `scontrol show job`. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from policies.clues import Clue
from supervisor.evidence.jobs import own_jobs, told_job
from supervisor.evidence.names import expand
from supervisor.evidence.reading import FileReading, Raw

_ID: Final = re.compile(r"(\d{1,12})(?:[_+][\w\[\],%-]{1,40})?(\.\w{1,20})?\+?")
_STATE: Final = re.compile(
    r"(COMPLETED|FAILED|NODE_FAIL|OUT_OF_ME\w*|TIMEOUT|CANCELLED|PREEMPTED|BOOT_FAIL|DEADLINE|REQUEUED|RESIZING|RUNNING"
    r"|PENDING|COMPLETING|SUSPENDED)(\+| by \d+)?"
)
_BY: Final = re.compile(r"\bCANCELLED by \d+")
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])(\d{3,12})(?![A-Za-z0-9])")

BAD: Final = frozenset({"FAILED", "NODE_FAIL", "TIMEOUT", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"})
"""States that a job ends in when it has failed; of one that somebody cancelled they do not say that."""

ENDS: Final = {
    "TIMEOUT": "scheduler.timelimit",
    "DEADLINE": "scheduler.timelimit",
    "PREEMPTED": "scheduler.preempt",
    "NODE_FAIL": "scheduler.nodefail",
    "OUT_OF_MEMORY": "oom.host",
    "CANCELLED": "scheduler.cancel",  # narrow columns cut the words that say by whom
}
"""States that say why Slurm itself ended a job."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row on a job or on a step of it."""

    job: str  # empty where the row does not say
    step: bool
    state: str  # without what follows it; "CANCELLED by" where a person is named
    nodes: str
    file: str
    line: int
    text: str


def _columns(header: str) -> list[str]:
    return [name.strip().lower() for name in (header.split("|") if "|" in header else header.split())]


def _entry(raw: Raw, file: str, columns: Sequence[str] | None) -> Entry | None:
    """The row, by its columns; where cells are empty and so cannot be counted, by what looks like a job and a state."""
    text = raw.text
    by_hand = _BY.search(text) is not None
    cells = [cell.strip() for cell in text.split("|")] if "|" in text else _BY.sub("CANCELLED", text).split()
    # `sacct -p` ends each line, that of the header too, with a bar.
    named = dict(zip(columns, cells, strict=True)) if columns is not None and len(cells) == len(columns) else {}
    ids = [named.get("jobid") or named.get("jobidraw") or "", *(() if named else cells)]
    job = next((m for cell in ids if (m := _ID.fullmatch(cell))), None)
    states = [named.get("state", ""), *(() if named else cells)]
    state = next((m for cell in states if (m := _STATE.fullmatch(cell))), None)
    if job is None or state is None:
        return None
    word = "OUT_OF_MEMORY" if state[1].startswith("OUT_OF_ME") else state[1]
    word = "CANCELLED by" if word == "CANCELLED" and by_hand else word
    return Entry(job[1], job[2] is not None, word, named.get("nodelist", ""), file, raw.line, text)


def _entries(readings: Sequence[FileReading]) -> list[Entry]:
    found: list[Entry] = []
    for reading in readings:
        columns: list[str] | None = None
        for raw in reading.raws:
            if raw.row.kind == "layout-accounting":
                columns = _columns(raw.text)
                continue
            told = raw.row.kind in ("job-completed", "job-failed")
            if columns is None and not told:
                continue
            entry = _entry(raw, reading.name, columns)
            if entry is None and told and columns is None:
                state = "COMPLETED" if raw.row.kind == "job-completed" else "FAILED"
                entry = Entry(told_job(raw.text) or "", False, state, "", reading.name, raw.line, raw.text)
            if entry is not None:
                found.append(entry)
    return found


def final(readings: Sequence[FileReading]) -> list[Entry]:
    """The last row on each job that these logs are of, for a job that was requeued has several; of steps where nothing else is."""
    rows = _entries(readings)
    own = own_jobs(readings) | {n for r in readings for n in _NUMBER.findall(os.path.basename(r.name))}
    ours = [row for row in rows if row.job in own or not row.job]
    rows = ours or rows
    whole = [row for row in rows if not row.step]
    return list({row.job: row for row in whole or rows}.values())


def of_others(readings: Sequence[FileReading]) -> frozenset[tuple[str, int]]:
    """File and line of the rows that are on other jobs."""
    ours = {row.job for row in final(readings)}
    return frozenset((row.file, row.line) for row in _entries(readings) if row.job not in ours)


def completed(readings: Sequence[FileReading]) -> bool | None:
    """Did the job complete? None where the accounting does not say it, or says only that somebody cancelled it."""
    states = {row.state for row in final(readings)}
    if states & BAD:
        return False
    return True if "COMPLETED" in states else None


def nodes(readings: Sequence[FileReading]) -> list[str]:
    """The nodes of the job, where the table lists them."""
    told = {row.nodes for row in final(readings) if row.nodes and not row.nodes.lower().startswith("none")}
    return expand(told.pop()) if len(told) == 1 else []


def ends(readings: Sequence[FileReading]) -> list[Clue]:
    """What the state of the job says of its end, as a weak clue: it carries no time and names no place."""
    return [
        Clue(
            "cancelled-by" if row.state == "CANCELLED" else "accounting-end",
            "root",
            1,
            category,
            "nobody",
            category != "oom.host",
            row.text,
            row.file,
            row.line,
        )
        for row in final(readings)
        if (category := ENDS.get(row.state)) is not None
    ]
