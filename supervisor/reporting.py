"""What a report of an incident needs beside the History, read from the run directory: losses of both passes, files, answers."""

from __future__ import annotations

import os

from policies.history import History
from supervisor.rundir import RunDir
from supervisor.step_rows import losses_of
from supervisor.telling.answers_told import Said
from supervisor.telling.incident_facts import find_incident, last_attempt
from supervisor.telling.report import Beside

STEPS_MAX = 20_000
"""So many replayed iterations are read at most; a picture has fewer points than that."""
FILES_MAX = 2_000


def beside(run: RunDir, history: History, wanted: int, said: tuple[Said, ...], tokens_per_sample: int = 0) -> Beside:
    """Read it. LookupError when the run has no such incident; what can't be read is left out."""
    incident = find_incident(history, wanted)
    newest = last_attempt(history, incident)
    first: dict[int, float | None] = {}
    again: dict[int, float | None] = {}
    if newest is not None and incident.frontier > newest.start_step:
        begin, end = newest.start_step + 1, min(incident.frontier, newest.start_step + STEPS_MAX)
        for attempt in history.attempts:
            if attempt.number < newest.number:  # the latest word before the replay counts
                first.update(losses_of(run, attempt.number, begin, end))
        again.update(losses_of(run, newest.number, begin, end))
    files = _files(run.incident(wanted))
    return Beside(said, tuple(sorted(first.items())), tuple(sorted(again.items())), tokens_per_sample, files)


def _files(folder: str) -> tuple[str, ...]:
    """Names below a folder, in order."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(place, name), folder) for name in sorted(names)]
        if len(found) >= FILES_MAX:
            break
    return tuple(found[:FILES_MAX])
