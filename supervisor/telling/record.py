"""incidents/NNNN/: the record of one incident, written anew whenever what is known of it changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from policies.history import History
from policies.layout import Layout
from policies.ledger import cost
from supervisor.durable import show_whole
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.telling.incident_story import incident_story
from supervisor.telling.status import Status
from supervisor.telling.story import Known, to_json
from supervisor.telling.take_over import take_over


def known_of(layout: Layout, now: float | None = None, held: str = "") -> Known:
    """What stories may use beside the history, from the journal alone."""
    return Known(layout=layout, now=now, held=held)


def watched_or_not(known: Known, run: RunDir, settings: Settings, status: Status | None, *, alive: bool) -> Known:
    """The same, with whether a controller is alive, since when none is, and what would start one."""
    if alive:
        return known
    since = status.at if status else None
    return replace(known, unwatched=True, unwatched_since=since, take_over=take_over(run.root, settings.cluster.kind))


def write_incident(run: RunDir, history: History, number: int, settings: Settings) -> None:
    """Write incident.json and story.txt. Raises OSError."""
    folder = run.incident(number)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    layout = settings.shape()
    known = known_of(layout)
    incident = next(i for i in history.incidents if i.number == number)
    record = to_json(history, number, known)
    spent = cost(incident, layout.world, settings.run.tokens_per_sample)
    record["cost"] = {
        "steps_again": spent.steps_again,
        "samples_again": spent.samples_again,
        "tokens_again": spent.tokens_again,
        "rank_hours": spent.rank_hours,
    }
    show_whole(os.path.join(folder, "incident.json"), json.dumps(record, indent=1).encode())
    show_whole(os.path.join(folder, "story.txt"), incident_story(history, number, known).encode())
