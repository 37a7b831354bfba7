"""Both ledgers, the samples read again, and where the time went."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import AttemptView, Counters, FaultClass, StepRow
from policies.history import Attempt, Books, History, Incident, Times, Trouble
from policies.ledger import (
    Cost,
    SampleRange,
    Split,
    between,
    by_now,
    close_attempt,
    cost,
    effective_share,
    lineage,
    read_again,
    roll_back,
    so_far,
    split,
)
from policies.reasons import Reason


def at(step: int, skipped: int = 0) -> Counters:
    return Counters(step=step, samples=8 * step, updates=step - skipped, skipped=skipped, lr=None)


def incident(number: int = 1, times: Times | None = None, **more: object) -> Incident:
    trouble = Trouble(FaultClass.NODE_LOST, Reason.NODE_LOST, 1000.0, 1, died=True, text="")
    one = Incident(number, 1, trouble, times or Times(), frontier=68, frontier_samples=680)
    return replace(one, **more)  # type: ignore[arg-type]


CHOSEN = incident(checkpoint_step=40, checkpoint_samples=400)


def test_a_rollback_moves_updates_out_of_the_lineage() -> None:
    books = close_attempt(Books(), at(0), at(68, skipped=2))
    assert books == Books(computed=66, skipped=2)
    books = roll_back(books, at(68, skipped=2), at(40, skipped=1))
    assert books == Books(computed=66, rolled_back=27, skipped=2, samples_read_again=8 * 28)
    assert lineage(books) == 39
    assert close_attempt(books, at(40, skipped=1), at(50, skipped=4)) == replace(books, computed=73, skipped=5)


def test_an_attempt_that_made_no_step_adds_nothing() -> None:
    books = Books(computed=40)
    assert close_attempt(books, at(40), at(0)) == books
    assert roll_back(books, at(40), at(40)) == books


def test_updates_whose_rows_were_lost_are_booked_by_the_save_that_holds_them() -> None:
    books = roll_back(Books(computed=40), at(40), at(42))
    assert books == Books(computed=42)


def test_the_samples_read_again() -> None:
    assert read_again(CHOSEN) == SampleRange(first=400, count=280)
    assert read_again(incident()) is None
    assert read_again(replace(CHOSEN, frontier_samples=400)) is None


FULL = Times(
    last_good=100.0,
    detected=111.0,
    confirmed=115.0,
    evidence=121.0,
    decided=122.0,
    approved=850.0,
    stopped=121.5,
    relaunched=890.0,
    loaded=1250.0,
    next_good=1295.0,
    caught_up=3695.0,
)


def test_where_the_time_went() -> None:
    parts = split(FULL)
    assert parts == Split(
        noticing=15.0,
        evidence=6.0,
        approval=728.0,
        stop_and_launch=41.0,
        loading=360.0,
        first_update=45.0,
        redo=2400.0,
    )
    assert (parts.down, parts.total) == (1195.0, 3595.0)


def test_time_before_an_unknown_moment_falls_to_the_next_known_one() -> None:
    parts = split(replace(FULL, approved=None, loaded=None))
    assert (parts.approval, parts.loading) == (0.0, 0.0)
    assert (parts.stop_and_launch, parts.first_update) == (769.0, 405.0)
    assert parts.total == 3595.0


def test_an_open_incident_ends_at_what_is_known() -> None:
    assert split(Times(last_good=100.0, detected=111.0)).total == 11.0
    assert split(Times(detected=111.0, evidence=115.0)) == Split(evidence=4.0)
    assert split(Times()) == Split()


def test_a_moment_that_lies_before_an_earlier_one_takes_no_time() -> None:
    parts = split(Times(last_good=100.0, detected=110.0, evidence=105.0, relaunched=120.0))
    assert parts == Split(noticing=10.0, stop_and_launch=10.0)


def test_what_an_open_attempt_has_done_is_added_once() -> None:
    begun = Attempt(2, ("n0",), None, 5, 1.0, None, began=Counters(5, 40, 5, 0, None))
    row = StepRow(2, 9, 72, 8, 1, 1.0, None, None, 1.0, 2.0, None)
    seen = AttemptView(2, True, last_step=row)
    books = Books(computed=10, rolled_back=3)
    assert by_now(books, begun, seen) == Books(computed=13, rolled_back=3, skipped=1)
    for attempt, view in (
        (replace(begun, closed_at=3.0), seen),  # it is booked with its end
        (begun, replace(seen, number=1)),  # of another one
        (begun, replace(seen, last_step=None)),
        (begun, None),
        (None, seen),
    ):
        assert by_now(books, attempt, view) is books


def test_the_effective_share() -> None:
    one = incident(1, Times(last_good=100.0, next_good=150.0, caught_up=200.0))
    two = incident(2, Times(last_good=600.0, next_good=650.0, caught_up=700.0))
    assert effective_share((), 0.0, 1000.0) == 1.0
    assert effective_share((one, two), 0.0, 1000.0) == pytest.approx(0.8)
    assert effective_share((one,), 5.0, 5.0) is None


def test_incidents_that_overlap_are_counted_once() -> None:
    one = incident(1, Times(last_good=100.0, next_good=150.0))
    two = incident(2, Times(last_good=160.0, next_good=250.0, caught_up=300.0), follows=1)
    assert effective_share((one, two), 0.0, 1000.0) == pytest.approx(0.8)
    inside = incident(2, Times(last_good=120.0, caught_up=180.0))
    outside = replace(one, times=replace(one.times, caught_up=200.0))
    assert effective_share((outside, inside), 0.0, 1000.0) == pytest.approx(0.9)


def test_one_that_has_not_caught_up_lasts_until_now_and_only_the_asked_time_counts() -> None:
    assert effective_share((incident(1, Times(last_good=900.0)),), 0.0, 1000.0) == pytest.approx(0.9)
    # without a good update before it, it begins with the trouble (1000 s)
    assert effective_share((incident(),), 0.0, 2000.0) == pytest.approx(0.5)
    wide = incident(1, Times(last_good=100.0, caught_up=900.0))
    assert effective_share((wide,), 500.0, 1000.0) == pytest.approx(0.2)
    assert effective_share((wide,), 100.0, 800.0) == 0.0
    assert effective_share((wide,), 950.0, 1000.0) == 1.0


def run(number: int, closed: float | None, accepted: float | None, by: int | None = None) -> Attempt:
    return Attempt(number, ("n0",), None, 0, 0.0, by, accepted_at=accepted, closed_at=closed)


def test_what_stood_without_a_fault_lasts_until_the_next_update() -> None:
    first, second = run(1, 400.0, 10.0), run(2, None, 700.0)
    assert between((first, second), 1000.0) == ((400.0, 700.0),)
    assert between((first, replace(second, accepted_at=None)), 1000.0) == ((400.0, 1000.0),)
    assert between((first, replace(second, accepted_at=None, closed_at=600.0, incident=1)), 500.0) == ()
    assert between((first, run(2, 600.0, None), run(3, None, 900.0, by=1)), 1000.0) == ((400.0, 600.0),)
    assert between((first,), 1000.0) == ((400.0, 1000.0),)  # the next job is awaited
    assert between((first,), 400.0) == between((run(1, None, 10.0),), 1000.0) == between((), 1.0) == ()


def test_between_jobs_a_run_is_down_and_that_is_counted_once() -> None:
    attempts = (run(1, 400.0, 10.0), run(2, None, 700.0))
    whole = History(started_at=0.0, attempts=attempts)
    assert so_far(whole, 1000.0) == (pytest.approx(0.7), 300.0)
    hit = incident(1, Times(last_good=650.0, next_good=750.0, caught_up=800.0), closed=True)
    assert so_far(replace(whole, incidents=(hit,)), 1000.0) == (pytest.approx(0.6), 300.0)
    waits = replace(whole, attempts=attempts[:1], ended="next-job")
    assert so_far(waits, 800.0) == (pytest.approx(0.5), 400.0)
    assert so_far(replace(waits, ended="finished"), 800.0) == (1.0, 0.0)
    failed = replace(whole, attempts=attempts[:1], incidents=(incident(1, Times(last_good=300.0)),))
    assert so_far(failed, 600.0) == (pytest.approx(0.5), 0.0)
    assert so_far(History(), 1.0) is so_far(whole, 0.0) is None


def test_what_an_incident_cost() -> None:
    times = Times(last_good=0.0, next_good=1800.0, caught_up=3600.0)
    assert cost(replace(CHOSEN, times=times), ranks=5120, tokens_per_sample=4096) == Cost(
        steps_again=28, samples_again=280, tokens_again=280 * 4096, rank_hours=5120.0
    )
    assert cost(incident(), ranks=8) == Cost(0, 0, 0, 0.0)
