"""Both ledgers, and where the time went.

Two rules hold for every history of attempts and rollbacks: computed = lineage + rolled back (in updates; skipped
updates are counted apart), and the parts of an incident's time add up to the whole. Work done again is cost, never
progress.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from policies.facts import Counters
from policies.history import Books

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policies.facts import AttemptView
    from policies.history import Attempt, History, Incident, Times


def close_attempt(books: Books, began: Counters, ended: Counters) -> Books:
    """Book what an attempt has computed between its load and its last step. One that made no step adds nothing."""
    return replace(
        books,
        computed=books.computed + max(0, ended.updates - began.updates),
        skipped=books.skipped + max(0, ended.skipped - began.skipped),
    )


def roll_back(books: Books, ended: Counters, checkpoint: Counters) -> Books:
    """Book a restart from `checkpoint` after an attempt that `ended` there: afterwards lineage = its updates.

    An attempt without a step ended where it began. A save may hold updates whose rows were lost with the fault; those
    were computed, and are booked so.
    """
    lost = ended.updates - checkpoint.updates
    again = max(0, ended.samples - checkpoint.samples)
    return replace(
        books,
        computed=books.computed + max(0, -lost),
        rolled_back=books.rolled_back + max(0, lost),
        samples_read_again=books.samples_read_again + again,
    )


def by_now(books: Books, attempt: Attempt | None, seen: AttemptView | None) -> Books:
    """The books with what the attempt that runs has been seen to compute; its own entry comes with its end."""
    last = seen.last_step if seen is not None and attempt is not None and seen.number == attempt.number else None
    if attempt is None or attempt.closed_at is not None or attempt.began is None or last is None:
        return books
    return close_attempt(books, attempt.began, Counters(last.step, last.samples, last.updates, last.skipped, last.lr))


def lineage(books: Books) -> int:
    """Updates that the current weights descend from."""
    return books.computed - books.rolled_back


@dataclass(frozen=True, slots=True)
class SampleRange:
    """Samples `first` to `first + count - 1`, counted over the run."""

    first: int
    count: int


def read_again(incident: Incident) -> SampleRange | None:
    """The samples that an incident makes the run read again; None for none, or while no checkpoint is chosen."""
    count = incident.frontier_samples - incident.checkpoint_samples
    if incident.checkpoint_step is None or count <= 0:
        return None
    return SampleRange(incident.checkpoint_samples, count)


# --- time ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """Where the time of one incident went, in seconds."""

    noticing: float = 0.0
    evidence: float = 0.0
    approval: float = 0.0
    stop_and_launch: float = 0.0
    loading: float = 0.0
    first_update: float = 0.0
    redo: float = 0.0

    @property
    def down(self) -> float:
        """From the last good update to the next one."""
        return self.total - self.redo

    @property
    def total(self) -> float:
        """Until the old frontier was reached again."""
        return (
            self.noticing
            + self.evidence
            + self.approval
            + self.stop_and_launch
            + self.loading
            + self.first_update
            + self.redo
        )


_MILESTONES: Final = (
    ("detected", "noticing"),
    ("confirmed", "noticing"),
    ("evidence", "evidence"),
    ("decided", "stop_and_launch"),  # a dead attempt is stopped before anything is decided
    ("approved", "approval"),
    ("relaunched", "stop_and_launch"),
    ("loaded", "loading"),
    ("next_good", "first_update"),
    ("caught_up", "redo"),
)
"""Each moment, and the part of the time that ends with it. `stopped` may lie on either side of `decided`."""


def split(times: Times) -> Split:
    """Cut an incident's time at the moments that are known; what lies before an unknown one falls to the next known.

    A moment that lies before an earlier one (they come from several machines' clocks) takes no time of its own.
    """
    known = [(getattr(times, moment), part) for moment, part in _MILESTONES if getattr(times, moment) is not None]
    parts = dict.fromkeys((part for _, part in _MILESTONES), 0.0)
    reached = times.last_good if times.last_good is not None else (known[0][0] if known else 0.0)
    for at, part in known:
        parts[part] += max(0.0, at - reached)
        reached = max(reached, at)
    return Split(**parts)


Span = tuple[float, float]
"""Begin and end, wall seconds."""


def effective_share(
    incidents: tuple[Incident, ...], began: float, ended: float, stood: tuple[Span, ...] = ()
) -> float | None:
    """ETTR: the share of the wall time from `began` to `ended` (seconds) that was neither down nor redone work.

    Incidents that overlap are counted once; one that has not caught up lasts until the next, or until `ended`. `stood` are spans
    without a fault in which nothing trained. None when no time has passed.
    """
    if ended <= began:
        return None
    lost, reached = 0.0, began
    for start, end in sorted((*_spans(incidents, ended), *stood)):
        lost += max(0.0, min(end, ended) - max(start, reached))
        reached = max(reached, min(end, ended))
    return 1.0 - lost / (ended - began)


def _spans(incidents: tuple[Incident, ...], ended: float) -> Iterator[Span]:
    ordered = sorted(incidents, key=_start)
    for incident, following in zip_longest(ordered, ordered[1:]):
        next_start = _start(following) if following else ended
        yield _start(incident), next_start if incident.times.caught_up is None else incident.times.caught_up


def between(attempts: Sequence[Attempt], until: float) -> tuple[Span, ...]:
    """When a run stood without a fault: from the end of an attempt to the first update of the one that no incident has started.

    Between two jobs, that is, or two nodes, or until a person went on. `until`: now, or the end of the run.
    """
    found = []
    for one, following in zip_longest(attempts, attempts[1:]):
        if one.closed_at is None or (following is not None and following.incident is not None):
            continue
        again = (following.accepted_at or following.closed_at) if following else None
        found.append((one.closed_at, until if again is None else again))
    return tuple((begin, end) for begin, end in found if end > begin)


def so_far(history: History, now: float) -> tuple[float, float] | None:
    """The effective share of the run until `now`, or until its end, and the seconds in it in which it stood without a fault.

    A run that waits for its next job is not over. None before it has begun.
    """
    if history.started_at is None:
        return None
    closed = history.attempt.closed_at if history.attempt else None
    until = closed if closed is not None and history.ended in {"finished", "stopped"} else now
    # What a fault has ended stands in its incident until there is another attempt.
    stood = between(history.attempts, closed if closed is not None and history.incident is not None else until)
    share = effective_share(history.incidents, history.started_at, until, stood)
    return None if share is None else (share, sum(end - begin for begin, end in stood))


def _start(incident: Incident) -> float:
    return incident.times.last_good if incident.times.last_good is not None else incident.trouble.at


@dataclass(frozen=True, slots=True)
class Cost:
    """What an incident cost. Rank-hours hold both the waiting and the work done again."""

    steps_again: int
    samples_again: int
    tokens_again: int
    rank_hours: float


def cost(incident: Incident, ranks: int, tokens_per_sample: int = 0) -> Cost:
    """Price an incident for a run of `ranks` ranks; its time ends with the last moment that is known."""
    again = read_again(incident)
    samples = again.count if again else 0
    steps = max(0, incident.frontier - incident.checkpoint_step) if incident.checkpoint_step is not None else 0
    return Cost(
        steps_again=steps,
        samples_again=samples,
        tokens_again=samples * tokens_per_sample,
        rank_hours=ranks * split(incident.times).total / 3600,
    )
