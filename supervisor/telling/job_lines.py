"""The Slurm job that holds the nodes, and the stop that was asked for, in a line each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.telling.incident_facts import Known
from supervisor.telling.say import SEEN_MAX, clean, clock, sentence, stamp

if TYPE_CHECKING:
    from policies.facts import View
    from policies.history import History

_THEN = {
    "end": "it goes on when it is started again",
    "next-job": "it goes on in its next job",
    "here": "it goes on with a spare in that slot",
}


def job_lines(history: History, view: View | None, now: float, known: Known) -> list[str]:
    """What is known of the job; none where the nodes are no job's."""
    lines = []
    job = view.job if view else None
    if job is not None:
        end = f", ends {clock(job.ends_at, known.zone, now)} ({job.ends_by})" if job.ends_at is not None else ""
        after = f"; next: {clean(job.next, 64)}" if job.next else ""
        lines.append(f"Job {clean(job.id, 32)}: {clean(job.word, 32).lower()}{end}{after}.")
    wish = history.stop_asked
    if wish is not None:
        when = " after the next save" if wish.after_save else ""
        why = f": {clean(wish.why, SEEN_MAX)}" if wish.why else ""
        asked = f"Stop{when} asked for by {clean(wish.who, 64)}, {stamp(wish.at, known.zone)}{why}"
        lines.append(f"{sentence(asked)} Then {_THEN[wish.then]}.")
    return lines
