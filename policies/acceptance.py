"""Is the run really back? Every rank in its place, with what the manifest says it must have loaded, and one new update.

Whatever is not known yet keeps the verdict pending; only what was reported, and is wrong, fails it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final, Literal

from policies.facts import Batch, Counters, Expected, Place, StepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policies.facts import AttemptView, Loaded
    from policies.layout import Layout

FAULTS_SHOWN: Final = 8
NOTHING: Final = Expected(checkpoint="", counters=None, limited=True)
"""What a start from nothing is held to: no checkpoint, and no digests or batches to compare with."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`missing`: ranks that have not reported what they loaded. `limited`: passed on less than the full evidence."""

    state: Literal["pending", "passed", "failed"]
    missing: int
    faults: tuple[str, ...] = ()
    limited: bool = False


def judge(
    layout: Layout,
    slots: tuple[str, ...],
    attempt: AttemptView,
    expected: Expected | None,
    from_nothing: bool,
    *,
    start_step: int | None = None,
) -> Verdict:
    """Judge an attempt; `expected` is None while the manifest has not been read.

    `start_step` is the step of the checkpoint, for attempts of which the manifest holds no counters. A rank that has
    ended badly keeps the verdict pending: that is a fault of its own, not one of acceptance.
    """
    if from_nothing:
        expected, start_step = NOTHING, 0
    missing = 0 if attempt.limited else sum(rank not in attempt.loaded for rank in range(layout.world))
    limited = attempt.limited or (expected is not None and expected.limited and not from_nothing)
    base = _base(attempt, expected, from_nothing)
    if base is not None:
        start_step = base.step
    faults = [] if attempt.limited else list(_load_faults(layout, slots, attempt, expected, base))
    row = attempt.first_step
    if row is not None and start_step is not None:
        batches = expected.next_batches if expected else {}
        faults += _step_faults(row, attempt, start_step, None if attempt.limited else base, batches)
    if faults:
        return Verdict("failed", missing, _shown(faults), limited)
    ready = expected is not None and not missing and start_step is not None and row is not None
    ended_badly = any(not e.clean for e in attempt.exits)
    if not ready or ended_badly or not _has_updated(attempt, None if attempt.limited else base):
        return Verdict("pending", missing, limited=limited)
    return Verdict("passed", 0, limited=limited)


def _base(attempt: AttemptView, expected: Expected | None, from_nothing: bool) -> Counters | None:
    """The counters that all must show: the manifest's, else what most ranks say (the lowest ranks on a draw)."""
    if expected is not None and expected.counters is not None:
        return expected.counters
    told = [one.counters for _, one in sorted(attempt.loaded.items()) if one.counters is not None]
    if from_nothing:
        rates = Counter(c.lr for c in told).most_common(1)
        return Counters(step=0, samples=0, updates=0, skipped=0, lr=rates[0][0] if rates else None)
    most = Counter(told).most_common(1)
    return most[0][0] if most else None


def _load_faults(
    layout: Layout, slots: tuple[str, ...], attempt: AttemptView, expected: Expected | None, base: Counters | None
) -> Iterator[str]:
    for rank, one in sorted(attempt.loaded.items()):
        if not 0 <= rank < layout.world or one.rank != rank:
            yield f"rank {one.rank} reported as rank {rank}; the layout has ranks 0..{layout.world - 1}"
            continue
        yield from _place_faults(layout, slots, attempt.number, one)
        if expected is not None:
            yield from _content_faults(one, expected, base)


def _place_faults(layout: Layout, slots: tuple[str, ...], number: int, one: Loaded) -> Iterator[str]:
    slot = layout.slot_of(one.rank)
    if one.attempt != number:
        yield f"rank {one.rank} reports for attempt {one.attempt}; this is attempt {number}"
    if one.node != slots[slot]:
        yield f"rank {one.rank} runs on {one.node}; its slot {slot} is on {slots[slot]}"
    place = layout.place(one.rank)
    if one.place != place:
        yield f"rank {one.rank} takes itself for {_spoken(one.place)}; its place is {_spoken(place)}"


def _content_faults(one: Loaded, expected: Expected, base: Counters | None) -> Iterator[str]:
    rank = one.rank
    if one.checkpoint != expected.checkpoint:
        yield f"rank {rank} loaded {one.checkpoint or 'nothing'}; the plan says {expected.checkpoint or 'nothing'}"
    yield from _counter_faults(rank, one.counters, base)
    yield from _compared(rank, "digest", one.digest, expected.digests.get(rank), expected.limited)
    yield from _compared(rank, "next samples", one.next_batch, expected.next_batches.get(rank), expected.limited)


def _counter_faults(rank: int, told: Counters | None, base: Counters | None) -> Iterator[str]:
    if told is None or base is None:
        yield f"rank {rank} gave no counters"
        return
    for name in ("step", "samples", "updates", "skipped"):
        if getattr(told, name) != getattr(base, name):
            yield f"rank {rank} has {name} {getattr(told, name)}; it should be {getattr(base, name)}"
    if told.lr != base.lr:
        yield f"rank {rank} has learning rate {told.lr}; it should be {base.lr}"


def _compared(
    rank: int, what: str, told: str | Batch | None, wanted: str | Batch | None, limited: bool
) -> Iterator[str]:
    """A limited manifest may hold nothing for a rank; a full one holds everything, and what it lacks is a fault."""
    if wanted is None:
        if not limited:
            yield f"the manifest has no {what} for rank {rank}"
    elif told is None:
        yield f"rank {rank} gave no {what}"
    elif told != wanted and not _is_there(told, wanted):
        yield f"rank {rank} has {what} {_spoken(told)}; the manifest has {_spoken(wanted)}"


def _is_there(told: str | Batch, wanted: str | Batch) -> bool:
    """A batch that samples left out have moved is known by its place alone (`policies/skipping.py`)."""
    if not isinstance(told, Batch) or not isinstance(wanted, Batch) or wanted.hash:
        return False
    return (told.first, told.count) == (wanted.first, wanted.count)


def _step_faults(
    row: StepRow, attempt: AttemptView, start_step: int, base: Counters | None, batches: Mapping[int, Batch]
) -> Iterator[str]:
    """The first step after the load, held against the counters that it began from."""
    if row.attempt != attempt.number:
        yield f"the first step is one of attempt {row.attempt}; this is attempt {attempt.number}"
    if row.step != start_step + 1:
        yield f"the first step is {row.step}; after checkpoint step {start_step} it should be {start_step + 1}"
    if row.loss is not None and not isfinite(row.loss):
        yield f"the loss of step {row.step} is {row.loss}"
    if base is None:  # log lines alone tell of no ledgers
        return
    if row.loss is None:
        yield f"the loss of step {row.step} was not reported"
    done = row.updates - base.updates + row.skipped - base.skipped
    if done != row.step - base.step or row.updates < base.updates or row.skipped < base.skipped:
        yield (
            f"step {row.step} has {row.updates} updates and {row.skipped} skipped; "
            f"the checkpoint had {base.updates} and {base.skipped} at step {base.step}"
        )
    if row.samples <= base.samples:
        yield f"step {row.step} has read {row.samples} samples; the checkpoint had read {base.samples}"
    if batches and row.batch is not None and row.batch not in batches.values():
        first, count = _window(batches)
        if (row.batch.first, row.batch.count) != (first, count):
            wanted = f"{first} to {first + count - 1}"
            yield f"step {row.step} read samples {_spoken(row.batch)}; the manifest has {wanted}"


def _window(batches: Mapping[int, Batch]) -> tuple[int, int]:
    """First sample and count of the whole next batch: each data-parallel replica reads a part of it, its ranks the same."""
    parts = {(b.first, b.count) for b in batches.values()}
    return min(first for first, _ in parts), sum(count for _, count in parts)


def _has_updated(attempt: AttemptView, base: Counters | None) -> bool:
    """A first step that was skipped is no update yet. With no ledger to ask, a step must do."""
    if base is None:
        return True
    return any(row is not None and row.updates > base.updates for row in (attempt.first_step, attempt.last_step))


def _spoken(value: Place | Batch | str | None) -> str:
    if isinstance(value, Place):
        return f"TP {value.tp} PP {value.pp} DP {value.dp}"
    if isinstance(value, Batch):
        known = f" (hash {value.hash})" if value.hash else ""
        return f"{value.first} to {value.first + value.count - 1}{known}"
    return "no place" if value is None else value


def _shown(faults: Iterable[str]) -> tuple[str, ...]:
    every = tuple(faults)
    if len(every) <= FAULTS_SHOWN:
        return every
    return (*every[:FAULTS_SHOWN], f"and {len(every) - FAULTS_SHOWN} more")
