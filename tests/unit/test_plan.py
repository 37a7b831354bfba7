"""The steps that a decision needs, in order; and what is always to be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AUTO, BARS_FOR_AN_HOUR, Scene, counters, node, nodes, save, save_id, training

from policies.decisions import Contain, Continue, Finish, Halt, PlannedStop, Recover, Restores, Wait
from policies.facts import UNKNOWN, AttemptView, CheckpointPhase, FaultClass, NodeState, View
from policies.history import Choice, History, Incident, Times, Trouble
from policies.reasons import Reason
from supervisor import actions
from supervisor.plan import NOTHING_DONE, plan, upkeep

SLOTS = ("n0", "n3", "n2")
PLAN = Recover(Reason.NODE_LOST, 1, None, True, 1, 2, SLOTS, ("n1",), save_id(40), 40, "m40", start=counters(40))
DOWN = (actions.Fence(1), actions.Stop(1))


def test_a_dead_attempt_is_looked_at_then_fenced_then_stopped() -> None:
    assert plan(Contain(Reason.RANK_DIED, 1, 1, died=True), History(), AUTO) == (
        actions.Capture(1, 1, stacks=False),
        *DOWN,
    )


def test_a_stall_is_only_looked_at() -> None:
    assert plan(Contain(Reason.STALL, 1, 1, died=False), History(), AUTO) == (actions.Capture(1, 1, stacks=True),)


def test_a_recovery_stops_bars_prepares_and_launches() -> None:
    launch = actions.Launch(2, 7, SLOTS, save_id(40), counters(40), 1)
    history = History(epoch=7)
    assert plan(PLAN, history, AUTO) == (*DOWN, actions.Bar(("n1",), 1, None), actions.MakeView(2, save_id(40)), launch)
    timed = plan(replace(PLAN, stops=None), history, BARS_FOR_AN_HOUR)
    assert timed == (actions.Bar(("n1",), 1, 3600.0), actions.MakeView(2, save_id(40)), launch)


def test_what_is_only_in_the_archive_comes_into_the_store_first() -> None:
    steps = plan(replace(PLAN, restores=Restores(7), bars=(), stops=None), History(epoch=7), AUTO)
    assert [s.kind for s in steps] == ["restore", "make-view", "launch"]
    assert steps[0] == actions.Restore(save_id(40))


def test_a_first_start_bars_nobody_and_starts_from_nothing() -> None:
    first = replace(PLAN, incident=None, stops=None, bars=(), checkpoint=None, start=None, checkpoint_step=0)
    assert plan(first, History(epoch=1), AUTO) == (
        actions.MakeView(2, None),
        actions.Launch(2, 1, SLOTS, None, NOTHING_DONE, None),
    )


def test_a_checkpoint_without_counters_counts_its_step() -> None:
    launch = plan(replace(PLAN, start=None), History(), AUTO)[-1]
    assert isinstance(launch, actions.Launch)
    assert (launch.start.step, launch.start.updates) == (40, 40)


def test_the_rest() -> None:
    running = training().history
    assert plan(PlannedStop(Reason.PLANNED_STOP, 1), running, AUTO) == (actions.AskStop(1),)
    halt = Halt(Reason.NO_SPARE, "", "", 1, None)
    assert plan(halt, running, AUTO) == DOWN
    assert plan(halt, History(), AUTO) == ()
    closed = replace(running, attempts=(replace(running.attempts[0], closed_at=1.0),))
    assert plan(halt, closed, AUTO) == ()
    finish = Finish(Reason.FINISHED, 1)
    assert plan(finish, running, AUTO) == ()
    assert plan(finish, replace(running, ended="finished"), AUTO) == (actions.Release(),)
    for nothing in (Continue(Reason.RUNNING), Wait(Reason.BLIND, 1.0)):
        assert plan(nothing, running, AUTO) == ()


def test_agents_go_where_there_are_none_and_a_node_can_run_one() -> None:
    known = {
        "b": node("b", agent=False),
        "a": node("a", agent=False),
        "c": node("c"),
        "d": node("d", NodeState.DOWN, agent=False),
        "e": node("e", NodeState.SILENT, agent=False),
    }
    view = View(nodes=known)
    started = (actions.StartAgent("a"), actions.StartAgent("b"))
    assert upkeep(History(epoch=1), view, AUTO, 0.0) == started
    assert upkeep(History(epoch=2, epoch_began_at=100.0), view, AUTO, 104.9) == ()
    assert upkeep(History(epoch=2, epoch_began_at=100.0), view, AUTO, 105.0) == started
    assert upkeep(History(epoch=1, ended="finished"), view, AUTO, 0.0) == ()
    assert upkeep(History(epoch=1), View(), AUTO, 0.0) == ()


def test_saves_are_sealed_in_order_but_the_newest_first_in_an_incident() -> None:
    done = [save(step, phase=CheckpointPhase.FRAMEWORK_DONE) for step in (50, 60)]
    view = View(nodes=nodes(), checkpoints=(*(save(s) for s in (10, 20, 30, 40)), *done))
    assert upkeep(History(epoch=1), view, AUTO, 0.0) == (actions.Seal(save_id(50)),)
    trouble = Trouble(FaultClass.RANK_DIED, Reason.RANK_DIED, 1.0, 1, died=True, text="")
    hurt = Incident(1, 1, trouble, Times(), 60, 0)
    assert upkeep(History(epoch=1, incidents=(hurt,)), view, AUTO, 0.0) == (actions.Seal(save_id(60)),)


def test_what_a_plan_needs_is_never_deleted() -> None:
    view = View(nodes=nodes(), checkpoints=tuple(save(s) for s in (10, 20, 30, 40, 50)))
    choice = Choice(checkpoint=save_id(10))
    history = History(epoch=1, decision=replace(PLAN, checkpoint=save_id(20)), choice=choice)
    assert upkeep(history, view, AUTO, 0.0) == ()
    one = upkeep(replace(history, choice=Choice()), view, AUTO, 0.0)
    assert one == (actions.Retain(save_id(50), AUTO.checkpoint.keep, (save_id(20),)),)


@pytest.mark.parametrize("closed_at", [None, 50.0, 200.0])
def test_unfinished_saves_are_void_once_the_store_was_read_after_the_end(closed_at: float | None) -> None:
    """A save that is still being written may be finished a moment before the end: the store is read again first."""
    running = training().history
    history = replace(running, attempts=(replace(running.attempts[0], closed_at=closed_at),))
    view = View(
        checkpoints=(save(44, phase=CheckpointPhase.IN_PROGRESS), save(45, 9, CheckpointPhase.IN_PROGRESS)),
        store_as_of=100.0,
    )
    assert upkeep(history, view, AUTO, 0.0) == ((actions.Abandon((save_id(44),)),) if closed_at == 50.0 else ())


def launching() -> Scene:
    scene = Scene()
    scene.obeys = lambda a: a.kind != "launch"
    scene.settle()
    return scene


def test_a_launch_that_is_not_seen_is_asked_for_again() -> None:
    scene = launching()
    asked = scene.of("launch")[0]
    scene.view = replace(scene.view, attempt=AttemptView(1, False))

    def again(history: History, view: View) -> bool:
        return asked in upkeep(history, view, AUTO, scene.now)

    attempt = scene.history.attempts[0]
    assert again(scene.history, scene.view)
    assert not again(scene.history, replace(scene.view, nodes=UNKNOWN))
    assert not again(scene.history, replace(scene.view, launched=frozenset({1})))
    assert again(scene.history, replace(scene.view, launched=frozenset({1}), untold=frozenset({"n1"})))
    assert not again(replace(scene.history, attempts=(replace(attempt, closed_at=1.0),)), scene.view)
    assert not again(replace(scene.history, intents={}), scene.view)
    halted = training()
    halted.lose("n1", "n2")
    halted.settle()
    assert not again(replace(scene.history, halted=halted.history.halted), scene.view)
    assert not again(replace(scene.history, incidents=halted.history.incidents), scene.view)
