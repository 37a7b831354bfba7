"""What the world shows and the journal does not know yet: noted once, in order, and only when it is sure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, AUTO, LAYOUT, Scene, end, save, save_id, training

from policies.facts import UNKNOWN, AttemptView, CheckpointPhase, FaultClass, NodeState, Phase, SaveView, View
from policies.reasons import Reason
from supervisor import actions
from supervisor.journal.entries import (
    AttemptClosed,
    CaughtUp,
    CheckpointCompleted,
    Diagnosed,
    Ended,
    Entry,
    HaltedEntry,
    IncidentClosed,
    IncidentMarked,
    IncidentOpened,
    Intended,
    Settled,
)
from supervisor.remember import Notebook, remember


def noted(scene: Scene, view: View | None = None) -> list[Entry]:
    book = Notebook(scene.history, scene.now)
    remember(book, view or scene.view, LAYOUT, AUTO)
    scene_after = scene.history
    assert book.history == scene_after or book.entries
    return book.entries


def kinds(scene: Scene, view: View | None = None) -> list[type]:
    return [type(e) for e in noted(scene, view)]


def test_a_run_that_trains_is_not_worth_an_entry() -> None:
    assert noted(training()) == []


def test_completed_saves_are_noted_once_in_the_order_of_their_completion() -> None:
    scene = training()
    scene.store(replace(save(60), completed_at=700.0), replace(save(50), completed_at=800.0))
    told = noted(scene)
    assert [e.step for e in told if isinstance(e, CheckpointCompleted)] == [60, 50]
    scene.say(*told)
    assert noted(scene) == []
    assert scene.history.completed == (save_id(40), save_id(60), save_id(50))


def test_a_completed_save_is_noted_with_what_it_cost() -> None:
    scene = training()
    told = SaveView(50, 1, 600.0, "written", 1.5, 20.0, 7, 3, 2.0)
    scene.change(saves=(SaveView(49, 1, 1.0, "failed"), told))
    scene.store(replace(save(50), completed_at=640.0, bytes=9))
    entry = next(e for e in noted(scene) if isinstance(e, CheckpointCompleted))
    cost = entry.cost
    assert (cost.id, cost.bytes, cost.blocked_s, cost.written_s, cost.completed_s) == (save_id(50), 9, 1.5, 20.0, 40.0)
    assert cost.step_s_beside == 2.0
    scene.change(saves=(replace(told, steps_beside=0),))
    scene.store(replace(save(50), completed_at=None))
    entry = next(e for e in noted(scene) if isinstance(e, CheckpointCompleted))
    assert (entry.cost.completed_s, entry.cost.step_s_beside) == (None, None)


def test_an_intent_is_settled_by_sight_or_by_an_outright_failure_and_sight_wins() -> None:
    scene = training()
    fence = actions.Fence(1)
    scene.say(Intended(fence))
    assert noted(scene) == []
    failed = replace(scene.view, failures=(("fence:1", "no space left"), ("fence:9", "not ours")))
    assert noted(scene, failed) == [Settled("fence:1", "failed", "no space left")]
    both = replace(failed, fenced=frozenset({1}))
    assert noted(scene, both)[0] == Settled("fence:1", "seen")
    scene.say(*noted(scene, failed))
    assert noted(scene, failed) == []  # told once


def test_an_incident_is_opened_with_what_had_been_done() -> None:
    scene = training()
    scene.die(1)
    (opened,) = noted(scene)
    assert isinstance(opened, IncidentOpened)
    assert (opened.number, opened.attempt, opened.frontier, opened.frontier_samples, opened.follows) == (
        1,
        1,
        45,
        360,
        None,
    )
    assert opened.last_good == scene.shown.last_step.at  # type: ignore[union-attr]


def test_an_attempt_that_dies_before_its_first_step_has_done_what_its_checkpoint_holds() -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    scene.die(2)
    opened = next(e for e in noted(scene) if isinstance(e, IncidentOpened))
    assert (opened.frontier, opened.frontier_samples, opened.follows) == (45, 360, 1)
    assert opened.last_good == scene.history.incidents[0].times.last_good
    fresh = Scene()
    fresh.settle()
    fresh.die(0)
    opened = next(e for e in noted(fresh) if isinstance(e, IncidentOpened))
    assert (opened.frontier, opened.frontier_samples, opened.last_good) == (0, 0, None)


@pytest.mark.parametrize("why", ["halted", "ended", "closed"])
def test_no_incident_is_opened_for_a_run_that_is_over(why: str) -> None:
    scene = training()
    if why == "halted":
        scene.say(HaltedEntry(Reason.PERSON_HALTED, "", "", None))
    elif why == "ended":
        scene.say(Ended("finished"))
    else:
        scene.history = replace(scene.history, attempts=(replace(scene.history.attempts[0], closed_at=1.0),))
    scene.die(1)
    assert IncidentOpened not in kinds(scene)


def test_the_evidence_of_another_incident_does_not_count() -> None:
    scene = training()
    scene.obeys = lambda _: False
    scene.die(1)
    scene.tick()
    from policies.facts import CaptureView

    def after(incident: int, *, done: bool, unknown: int = 0) -> list[Entry]:
        return noted(scene, replace(scene.view, capture=CaptureView(incident, done, 3, unknown)))

    assert after(2, done=True) == []
    assert after(1, done=False) == []
    marked = after(1, done=True, unknown=2)
    assert marked[-2] == IncidentMarked(1, "evidence", "3 ranks, 2 unknown")
    assert isinstance(marked[-1], Diagnosed)


def test_an_attempt_is_closed_when_it_is_fenced_and_nothing_of_it_can_be_reached() -> None:
    scene = training()
    scene.die(1)
    down = replace(scene.view, fenced=frozenset({1}), steps_running=frozenset())
    assert AttemptClosed in kinds(scene, down)
    assert AttemptClosed not in kinds(scene, replace(down, fenced=frozenset()))
    assert AttemptClosed not in kinds(scene, replace(down, steps_running=frozenset({1})))
    assert AttemptClosed not in kinds(scene, replace(down, nodes=UNKNOWN))


def test_one_that_was_never_seen_is_closed_only_long_after_its_fence() -> None:
    scene = training()
    late = replace(scene.view, fenced=frozenset({1}), steps_running=frozenset(), launched=frozenset())
    asked = scene.history.attempts[0].intended_at
    for after, closed in ((AUTO.node.gone_s - 1, False), (AUTO.node.gone_s, True)):
        view = replace(late, cluster_as_of=asked + after)
        assert (AttemptClosed in kinds(scene, view)) == closed
    assert AttemptClosed not in kinds(scene, replace(late, cluster_as_of=None))
    assert AttemptClosed not in kinds(scene, replace(late, cluster_as_of=asked + 1e4, fenced=frozenset()))


def test_our_own_kills_are_no_part_of_the_cascade() -> None:
    """Rank 1 died; we stopped the others 10 s later. The cascade is nobody."""
    scene = training()
    scene.die(1)
    scene.obeys = lambda a: a.kind != "stop"
    scene.settle()
    stop_at = scene.now
    scene.change(
        exits=(*scene.shown.exits, end(0, "n0", at=stop_at + 1, signal=9), end(2, "n2", at=stop_at + 1, signal=9))
    )
    scene.wait(5)
    scene.view = replace(scene.view, steps_running=frozenset())
    scene.obeys = lambda _: True
    scene.settle()
    diagnosis = scene.history.incidents[0].diagnosis
    assert diagnosis is not None
    assert [f.rank for f in diagnosis.first] == [1]
    assert diagnosis.cascade == ""


def test_earlier_evidence_that_comes_late_replaces_the_first_word() -> None:
    """Rank 2's record arrives after the diagnosis, and is earlier."""
    scene = training()
    scene.wait(10)
    scene.die(1)
    scene.obeys = lambda a: a.kind != "fence"
    scene.settle()
    assert scene.history.incidents[0].diagnosis.first[0].rank == 1  # type: ignore[union-attr]
    scene.change(exits=(*scene.shown.exits, end(2, "n2", at=scene.now - 5, signal=11)))
    scene.obeys = lambda _: True
    scene.wait(20)
    scene.settle()
    assert scene.history.incidents[0].diagnosis.first[0].rank == 2  # type: ignore[union-attr]


def test_the_load_is_marked_when_every_rank_has_told_of_it() -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    marked = noted(scene)
    assert marked == [IncidentMarked(1, "loaded")]
    told = dict(scene.shown.loaded)
    del told[0]
    scene.change(loaded=told)
    assert noted(scene) == []


def test_a_run_of_log_lines_is_accepted_and_says_so() -> None:
    scene = Scene()
    scene.settle()
    scene.change(limited=True)
    scene.step(1)
    (accepted,) = noted(scene)
    assert "limited" in accepted.text  # type: ignore[union-attr]


def test_the_old_frontier_is_passed_once() -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    scene.step(45)
    assert kinds(scene) == [CaughtUp]
    scene.settle()
    assert noted(scene) == []


def test_probation_ends_with_its_attempt() -> None:
    """The attempt was closed before it had caught up: nothing more is judged of it."""
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "", "", None))
    scene.settle()
    scene.step(45)
    assert noted(scene) == []


def test_the_end_waits_for_the_last_save() -> None:
    scene = training()
    scene.step(50)
    scene.finish_ranks()
    scene.store(save(50, phase=CheckpointPhase.FRAMEWORK_DONE))
    scene.obeys = lambda a: a.kind != "seal"
    scene.settle()
    assert scene.history.ended is None
    scene.store(save(50))
    assert Ended in kinds(scene)
    assert Ended not in kinds(scene, replace(scene.view, checkpoints=UNKNOWN))
    assert Ended not in kinds(scene, replace(scene.view, store_as_of=0.0))
    assert Ended not in kinds(scene, replace(scene.view, attempt=None))


def test_a_relaunch_that_has_nothing_left_to_do_ends_the_run() -> None:
    """The fault came after the last save: the ranks load it, find nothing to do, and end with 0."""
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    scene.finish_ranks()
    told = noted(scene, replace(scene.view, store_as_of=scene.now))
    assert [type(e) for e in told][-3:] == [AttemptClosed, IncidentClosed, Ended]
    assert told[-1] == Ended("finished")


def test_what_is_shown_of_another_attempt_is_nothing() -> None:
    scene = training()
    view = replace(scene.view, attempt=AttemptView(7, True, exits=(end(0, "n0", 7, code=1),), phase=Phase.STEP))
    assert noted(scene, view) == []
    assert scene.view.nodes is not UNKNOWN
    lost = {**scene.view.nodes, "n1": replace(scene.view.nodes["n1"], state=NodeState.DOWN)}
    opened = noted(scene, replace(view, nodes=lost))[0]
    assert isinstance(opened, IncidentOpened)
    assert opened.trouble.fault is FaultClass.NODE_LOST


def test_a_stall_that_ends_by_itself_closes_its_incident() -> None:
    """Approve mode: a stall waits for a person, and training moves on before anybody has answered."""
    scene = training(APPROVE)
    scene.wait(60)
    scene.settle()
    assert scene.history.incident is not None
    assert scene.history.incident.trouble.fault is FaultClass.STALL
    scene.step(scene.history.incident.frontier + 1)
    scene.settle()
    assert scene.history.incident is None
    assert scene.history.decision is None
    assert scene.history.attempt is not None
    assert scene.history.attempt.number == 1
