"""The aggregate of one attempt, message by message."""

from __future__ import annotations

import pytest

from policies.facts import UNKNOWN, Batch, Loaded, Phase, RankExit, StepRow
from supervisor.observe.progress import Pace, Progress
from supervisor.observe.replay import NOT_COMPARABLE, Overlay


def row(step, loss=2.0, seconds=0.1, at=None, batch=None):
    return StepRow(1, step, step * 8, step, 0, loss, 1e-3, 1.0, seconds, float(step) if at is None else at, batch)


def tell(progress, *rows, **more):
    return [progress.row(r, **{"non_finite": False, "from_log": False, **more}) for r in rows]


def view(progress):
    return progress.view(True)


def test_an_attempt_of_which_nothing_is_known():
    shown = Progress(3, 8).view(UNKNOWN)
    assert (shown.number, shown.running, shown.started, shown.phases) == (3, UNKNOWN, frozenset(), {Phase.START_UP: 8})
    assert (shown.frontier, shown.last_advance, shown.behind, shown.limited) == (0, None, (), True)


def test_the_modal_phase_and_since_when():
    progress = Progress(1, 4)
    for rank in range(4):
        progress.heard(rank, 10.0, speaks=True)
    for rank in range(4):
        progress.moved(rank, Phase.LOAD, -1, 20.0 + rank)
    shown = view(progress)
    assert (shown.phase, shown.phase_since, shown.phases) == (Phase.LOAD, 22.0, {Phase.LOAD: 4})
    assert shown.last_advance == 23.0


def test_only_what_moves_is_an_advance():
    progress = Progress(1, 2)
    progress.heard(0, 1.0, speaks=True)
    progress.moved(0, Phase.STEP, 5, 2.0)
    progress.moved(0, Phase.STEP, 5, 9.0)
    progress.moved(0, Phase.STEP, 4, 9.0)
    assert view(progress).last_advance == 2.0
    progress.moved(1, None, 1, 3.0)
    assert view(progress).last_advance == 3.0


def test_what_is_told_late_does_not_turn_the_clock_back():
    progress = Progress(1, 2)
    progress.moved(0, Phase.STEP, 5, 9.0)
    progress.moved(1, Phase.STEP, 5, 2.0)
    assert view(progress).last_advance == 9.0


def test_the_rank_that_stands_is_behind():
    progress = Progress(1, 8)
    for rank in range(8):
        progress.heard(rank, 0.0, speaks=True)
        progress.moved(rank, Phase.STEP, 7, 1.0)
    assert view(progress).behind == ()
    for rank in range(8):
        if rank != 3:
            progress.moved(rank, Phase.STEP, 8, 2.0)
    assert view(progress).behind == (3,)


@pytest.mark.parametrize(
    ("many", "few"), [(Phase.SAVE, Phase.STEP), (Phase.STEP, Phase.SAVE), (Phase.LOAD, Phase.START_UP)]
)
def test_the_rank_in_another_phase_is_behind(many, few):
    progress = Progress(1, 4)
    for rank in range(4):
        progress.heard(rank, 0.0, speaks=True)
        progress.moved(rank, few if rank == 2 else many, 7, 1.0)
    assert view(progress).behind == (2,)


def test_who_is_ahead_or_done_is_not_behind():
    progress = Progress(1, 4)
    for rank in range(4):
        progress.heard(rank, 0.0, speaks=True)
        progress.moved(rank, Phase.STEP, 7, 1.0)
    progress.moved(0, Phase.STEP, 8, 1.0)
    progress.moved(1, Phase.SHUTDOWN, 7, 1.0)
    progress.done(1, 1.0)
    assert view(progress).behind == ()
    assert view(progress).done == 1


def test_a_rank_that_was_started_again_begins_anew():
    progress = Progress(1, 2)
    for rank in (0, 1):
        progress.heard(rank, 0.0, pid=100 + rank, speaks=True)
        progress.moved(rank, Phase.STEP, 7, 1.0)
    progress.heard(0, 2.0, pid=100)  # told again, no new start
    assert view(progress).behind == ()
    progress.heard(0, 2.0, pid=200)
    assert view(progress).behind == (0,)
    assert view(progress).phases == {Phase.STEP: 1, Phase.START_UP: 1}


def test_rows_count_once_and_in_order():
    progress = Progress(1, 1)
    kept = tell(progress, row(1), row(2), row(2), row(1), row(3))
    assert [r.step if r else None for r in kept] == [1, 2, None, None, 3]
    shown = view(progress)
    assert (shown.frontier, shown.first_step.step, shown.last_step.step) == (3, 1, 3)


def test_a_first_row_that_is_told_late_is_the_first():
    """A new controller may hear a newer row before the agent has told its last ones again; acceptance looks at the first."""
    progress = Progress(1, 2)
    assert tell(progress, row(10), row(11), row(9), row(9), row(10)) == [row(10), row(11), row(9), None, None]
    shown = view(progress)
    assert (shown.first_step, shown.last_step) == (row(9), row(11))


def test_rows_of_a_log_count_only_while_no_rank_speaks():
    progress = Progress(1, 4)
    assert tell(progress, row(1), from_log=True) != [None]
    shown = view(progress)
    assert (shown.limited, shown.phase, shown.phases, shown.phase_since, shown.behind) == (
        True,
        Phase.STEP,
        {Phase.STEP: 4},
        1.0,
        (),
    )
    progress.heard(0, 2.0, speaks=True)
    assert tell(progress, row(2), from_log=True) == [None]
    assert not view(progress).limited


def test_a_start_alone_leaves_the_attempt_limited():
    progress = Progress(1, 2)
    progress.heard(0, 1.0, pid=9)
    assert view(progress).limited
    progress.heard(0, 1.0, speaks=True)
    assert not view(progress).limited


def test_the_pace_leaves_out_early_steps_saves_and_stalls():
    progress = Progress(1, 1)
    tell(progress, row(1, seconds=90.0))
    assert view(progress).slowest_step_s == 90.0  # better than nothing
    tell(progress, row(2), row(3), *(row(n, seconds=0.1 + n / 1000) for n in range(4, 20)))
    assert view(progress).slowest_step_s == pytest.approx(0.119)
    progress.save(19, "begin", 19.0)
    tell(progress, row(20, seconds=0.25), row(21, seconds=0.26))  # around the save
    assert view(progress).slowest_step_s == pytest.approx(0.119)
    tell(progress, row(22, seconds=30.0))  # it stood still and went on
    assert view(progress).slowest_step_s == pytest.approx(0.119)
    tell(progress, row(23, seconds=0.2))
    assert view(progress).slowest_step_s == 0.2


def test_the_pace_outlives_an_attempt():
    pace = Pace()
    tell(Progress(1, 1, pace), *(row(n) for n in range(1, 9)))
    assert view(Progress(2, 1, pace)).slowest_step_s == 0.1


def test_saves_go_forward_only():
    progress = Progress(1, 2)
    progress.save(40, "begin", 1.0)
    progress.save(40, "blocked", 2.0)
    progress.save(40, "begin", 3.0)  # the other rank is later
    assert [(s.step, s.state, s.began_at) for s in view(progress).saves] == [(40, "blocked", 1.0)]
    progress.save(40, "failed", 4.0)
    progress.save(40, "written", 5.0)
    progress.save(40, "failed", 6.0)
    progress.save(41, "nonsense", 7.0)
    assert [(s.step, s.state) for s in view(progress).saves] == [(40, "written")]


def test_only_so_many_saves_are_kept():
    progress = Progress(1, 2)
    for step in range(100):
        progress.save(step, "begin", 1.0)
    assert [s.step for s in view(progress).saves] == list(range(84, 100))


def test_the_first_end_of_a_rank_stands():
    progress = Progress(1, 2)
    assert progress.exited(RankExit(1, "n", 1, 5.0, signal=9))
    assert not progress.exited(RankExit(1, "n", 1, 6.0, code=1))
    assert [e.signal for e in view(progress).exits] == [9]


def test_a_view_does_not_change_afterwards():
    progress = Progress(1, 2)
    progress.loaded(Loaded(0, "n", 1, None, "c", None, None, None), 1.0)
    before = view(progress)
    progress.loaded(Loaded(1, "n", 1, None, "c", None, None, None), 1.0)
    progress.moved(0, Phase.STEP, 3, 2.0)
    assert (len(before.loaded), before.phases) == (1, {Phase.START_UP: 2})
    assert len(view(progress).loaded) == 2


def test_the_first_non_finite_row_is_kept():
    progress = Progress(1, 1)
    tell(progress, row(1))
    tell(progress, row(2, loss=None), row(3, loss=None), non_finite=True)
    assert view(progress).non_finite.step == 2


def reference(*rows):
    return {r.step: r for r in rows}


def test_a_replay_without_a_difference():
    progress = Progress(2, 1)
    progress.lay_over(reference(*(row(n, loss=2.0 + n, batch=Batch(n, 8, "h")) for n in range(5, 9))), 0.0)
    assert view(progress).replay is None
    tell(progress, row(4, loss=9.0), *(row(n, loss=2.0 + n, batch=Batch(n, 8, "h")) for n in range(5, 8)))
    replay = view(progress).replay
    assert (replay.compared, replay.differing, replay.worst) == (3, 0, 0.0)
    assert replay.first_differing is replay.data_differing is None


def test_a_planted_loss_is_seen():
    progress = Progress(2, 1)
    progress.lay_over(reference(row(5), row(6), row(7)), 1e-3)
    tell(progress, row(5, loss=2.001), row(6, loss=2.1), row(7))
    replay = view(progress).replay
    assert (replay.compared, replay.differing, replay.first_differing) == (3, 1, 6)
    assert replay.worst == pytest.approx(0.05)


def test_zero_tolerance_asks_for_the_same_bits():
    overlay = Overlay(reference(row(5, loss=0.1 + 0.2)), 0.0)
    overlay.add(row(5, loss=0.3))
    assert overlay.result().differing == 1


@pytest.mark.parametrize(
    ("now", "before", "told"),
    [(None, 2.0, (1, NOT_COMPARABLE)), (2.0, None, (1, NOT_COMPARABLE)), (None, None, (0, 0.0))],
)
def test_what_is_no_number_differs_from_every_number(now, before, told):
    """Twice none is the same again: a sample that is poisoned is no fault of the restart."""
    overlay = Overlay(reference(row(5, loss=before)), 10.0)
    overlay.add(row(5, loss=now))
    assert (overlay.result().differing, overlay.result().worst) == told


def test_another_batch_is_seen_although_the_loss_is_equal():
    overlay = Overlay(reference(*(row(n, batch=Batch(n, 8, "a")) for n in (5, 6, 7))), 0.0)
    for n, digest in ((5, "a"), (6, "b"), (7, "b")):
        overlay.add(row(n, batch=Batch(n, 8, digest)))
    assert (overlay.result().differing, overlay.result().data_differing) == (0, 6)


def test_rows_that_were_known_before_the_reference_are_compared_too():
    progress = Progress(2, 1)
    tell(progress, row(5, loss=3.0))
    progress.lay_over(reference(row(5)), 0.0, [row(5, loss=3.0)])
    assert view(progress).replay.first_differing == 5


def test_losses_off_are_counted_within_a_window():
    """Off at 1, 2 and 6 of a window of 4: two at most are close; and a window of 2 sees the same two."""
    for window, close in ((4, 2), (2, 2), (1, 1), (6, 3)):
        overlay = Overlay(reference(*(row(n) for n in range(1, 8))), 1e-3, window)
        for n in range(1, 8):
            overlay.add(row(n, loss=2.5 if n in {1, 2, 6} else 2.0))
        assert (overlay.result().close, overlay.result().differing) == (close, 3)


def test_the_first_loss_that_is_no_longer_finite_is_named():
    overlay = Overlay(reference(row(5, loss=None), row(6), row(7)), 1e-3)
    for n in (5, 6, 7):
        overlay.add(row(n, loss=None))
    assert overlay.result().not_finite == 6
