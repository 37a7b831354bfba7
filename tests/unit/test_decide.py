"""Rule by rule: what the stories of test_tick do not come across."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, AUTO, LAYOUT, T0, Scene, back, node, nodes, save, save_id, training

from policies.decide import decide, stop_restarting
from policies.decisions import Continue, Decision, Finish, Halt, Recover, Wait
from policies.facts import UNKNOWN, CheckpointPhase, FaultClass, NodeState, Rejected, View
from policies.history import Attempt, Choice, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.recovering import recover
from policies.rollback import await_seals
from policies.situation import Situation
from policies.sticky import contradiction
from supervisor.journal.entries import HaltedEntry, Resumed


def decided(scene: Scene, view: View | None = None) -> Decision:
    return decide(scene.history, view or scene.view, LAYOUT, scene.rules, scene.now)


@pytest.fixture
def waiting() -> Scene:
    """A plan waits for a person: n1 is lost, n3 is to take its slot from step 40."""
    scene = training(APPROVE)
    scene.lose("n1")
    scene.settle()
    assert isinstance(scene.history.decision, Recover)
    return scene


def test_a_plan_stands_while_nothing_contradicts_it(waiting: Scene) -> None:
    assert decided(waiting) == waiting.history.decision
    waiting.store(save(44))  # a newer save alone does not change what a person is reading
    assert decided(waiting) == waiting.history.decision


def test_before_the_first_look_nothing_is_unreadable_yet() -> None:
    """Then it is, also where the look never comes back; a look that failed says so at once."""
    began = 1000.0
    blind, history = View(unread=frozenset({"cluster", "store"})), History(epoch=1, epoch_began_at=began)
    for view, after, reason in (
        (blind, 1.0, Reason.FIRST_LOOK),
        (replace(blind, nodes=nodes(), unread=frozenset({"store"})), 1.0, Reason.FIRST_LOOK),
        (replace(blind, nodes=nodes(), unread=frozenset()), 1.0, Reason.STORE_BLIND),
        (replace(blind, unread=frozenset()), 1.0, Reason.BLIND),
        (blind, 10.0, Reason.BLIND),
    ):
        found = decide(history, view, LAYOUT, AUTO, began + after)
        assert isinstance(found, Wait)
        assert found.reason is reason
        assert began + after < found.until <= began + after + 5
    late = decide(history, blind, LAYOUT, AUTO, began + 8)
    assert isinstance(late, Wait)
    assert late.until == began + 10


def nothing(scene: Scene) -> None:
    """No change."""


def drained(scene: Scene) -> None:
    scene.node("n3", drained_by_other=True)


def silent_for_long(scene: Scene) -> None:
    scene.node("n3", state=NodeState.SILENT)
    scene.wait(AUTO.node.silent_s)


def silent_just_now(scene: Scene) -> None:
    scene.node("n3", state=NodeState.SILENT)


def not_listed(scene: Scene) -> None:
    assert isinstance(scene.view.nodes, dict)
    scene.view = replace(scene.view, nodes={k: v for k, v in scene.view.nodes.items() if k != "n3"})


def a_member_is_drained(scene: Scene) -> None:
    """It runs already: somebody else's drain lets what runs go on."""
    scene.node("n0", drained_by_other=True)


def not_in_the_store(scene: Scene) -> None:
    scene.view = replace(scene.view, checkpoints=())


def broken(scene: Scene) -> None:
    scene.store(save(40, phase=CheckpointPhase.BROKEN))


def another_manifest(scene: Scene) -> None:
    scene.store(replace(save(40), manifest_hash="other"))


def unfit(scene: Scene) -> None:
    scene.history = replace(scene.history, unfit=(Rejected(save_id(40), "gone"),))


def blind(scene: Scene) -> None:
    scene.view = replace(scene.view, nodes=UNKNOWN)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (nothing, None),
        (silent_just_now, None),
        (a_member_is_drained, None),
        (blind, None),
        (drained, "n3 was drained by somebody else"),
        (silent_for_long, "n3 does not answer"),
        (not_listed, "n3 is gone"),
        (not_in_the_store, "no longer completed"),
        (broken, "no longer completed"),
        (another_manifest, "another manifest"),
        (unfit, "could not be made ready"),
    ],
)
def test_what_contradicts_a_plan(change: object, why: str | None, waiting: Scene) -> None:
    assert callable(change)
    change(waiting)
    plan = waiting.history.decision
    assert isinstance(plan, Recover)
    said = contradiction(Situation(waiting.history, waiting.view, LAYOUT, APPROVE, waiting.now), plan)
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")


def test_a_start_from_nothing_has_no_checkpoint_to_contradict() -> None:
    scene = Scene()
    scene.obeys = lambda _: False
    scene.tick()
    plan = scene.history.decision
    assert isinstance(plan, Recover)
    assert plan.checkpoint is None
    assert decided(scene) == plan


def test_the_first_start_waits_for_agents_and_then_for_nodes() -> None:
    """So that slots go by name. After the grace, those that are ready are enough or not."""
    scene = Scene()
    scene.view = replace(scene.view, nodes={**nodes(), "n0": node("n0", agent=False)})
    early = decided(scene)
    assert early == Wait(Reason.FIRST_START, T0 + 5.0, "1 nodes are not ready yet")
    scene.wait(5)
    late = decided(scene)
    assert isinstance(late, Recover)
    assert late.slots == ("n1", "n2", "n3")
    scene.node("n1", state=NodeState.DOWN)
    short = decided(scene)
    assert isinstance(short, Wait)
    assert short.text == "1 slot without a ready node: n0 no agent, n1 down"
    scene.wait(AUTO.node.launch_s)
    halt = decided(scene)
    assert isinstance(halt, Halt)
    assert (halt.reason, halt.seen) == (Reason.NO_SPARE, short.text)


def test_a_node_that_the_cluster_has_not_heard_of_yet_is_waited_for() -> None:
    """Slurm's controller has just started: in an incident and at a start, for a minute; then such a node is none."""
    scene = training()
    scene.die(1)
    for name in nodes():
        scene.node(name, state=NodeState.UNKNOWN)
    first = scene.settle().decision
    assert isinstance(first, Wait)
    assert (first.reason, first.text) == (Reason.BLIND, "the cluster has not heard of n0, n1, n2, n3 yet")
    scene.wait(AUTO.node.gone_s)
    late = decided(scene)
    assert isinstance(late, Halt)
    assert late.reason is Reason.NO_SPARE
    for name in nodes():
        scene.node(name, state=NodeState.UP)
    plan = decided(scene)
    assert isinstance(plan, Recover)
    assert plan.swaps == ()
    start = Scene()
    start.view = replace(start.view, nodes=nodes())
    start.node("n0", state=NodeState.UNKNOWN)
    assert decided(start) == Wait(Reason.BLIND, T0 + 5.0, "the cluster has not heard of n0 yet")


def test_a_lifted_halt_waits_until_each_slot_has_a_node() -> None:
    scene = training()
    scene.say(HaltedEntry(Reason.PERSON_HALTED, "li", "", None))
    scene.settle()
    scene.say(Resumed("li", "go on"))
    for name in ("n1", "n3"):
        scene.node(name, state=NodeState.DOWN, agent=False)
    short = decided(scene)
    assert isinstance(short, Wait)
    assert short.text == "1 slot without a ready node: n1 down, n3 down"
    scene.node("n3", state=NodeState.UP, agent=True)
    plan = decided(scene)
    assert isinstance(plan, Recover)
    assert (plan.slots, plan.swaps) == (("n0", "n3", "n2"), ((1, "n1", "n3"),))


def test_no_checkpoint_is_left() -> None:
    """Saves were completed once and none is there: never from nothing; what was seen is named, or that nothing was."""
    scene = training()
    scene.store(save(40, phase=CheckpointPhase.BROKEN))
    scene.die(1)
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.NO_CHECKPOINT
    assert save_id(40) in turn.decision.seen
    assert "launch" not in scene.kinds()


def test_a_checkpoint_that_a_person_chose_and_that_is_gone() -> None:
    scene = training()
    scene.die(1)
    scene.obeys = lambda a: a.kind not in {"launch", "make-view"}
    scene.settle()
    scene.history = replace(scene.history, choice=Choice(checkpoint=save_id(99)), decision=None)
    halt = decided(scene)
    assert isinstance(halt, Halt)
    assert "there is no such save" in halt.seen


def test_too_many_nodes_at_once_ask_a_person() -> None:
    """Three of three lost within the hour: the breaker asks, though automation is cleared."""
    scene = training()
    assert isinstance(scene.view.nodes, dict)
    scene.view = replace(scene.view, nodes=nodes(8))
    scene.lose("n0", "n1", "n2")
    turn = scene.settle()
    assert isinstance(turn.decision, Recover)
    assert turn.decision.asks
    assert turn.held is not None
    assert turn.held.asks


def test_a_resumed_run_bars_what_is_still_down() -> None:
    """One of two lost nodes is back when the halt is lifted: that one is used, the other is barred."""
    scene = training()
    scene.lose("n1", "n2")
    scene.settle()
    scene.node("n1", state=NodeState.UP, agent=True)
    scene.say(Resumed("li", "n1 was rebooted"))
    scene.settle()
    assert scene.history.barred(scene.now) == {"n2"}
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots == ("n0", "n1", "n3")


def test_a_resume_does_not_clear_a_node_of_other_faults() -> None:
    """What the node did, it may do again: only being away is over when it is back."""
    scene = training()
    scene.die(1)
    scene.settle()
    incident = scene.history.incidents[0]
    situation = Situation(replace(scene.history, resumed_at=scene.now), scene.view, LAYOUT, AUTO, scene.now)
    from policies.recovering import _brought_back

    assert _brought_back(situation, incident) == ()
    lost = replace(incident, diagnosis=None, trouble=replace(incident.trouble, fault=FaultClass.NODE_LOST))
    assert _brought_back(situation, lost) == ("n0", "n1", "n2", "n3")
    assert _brought_back(replace(situation, view=View()), lost) == ()


def test_rules_about_incidents_have_nothing_to_say_about_another_attempt() -> None:
    incident = Incident(1, 1, Trouble(FaultClass.STALL, Reason.STALL, 0.0, 1, False, ""), Times(), 0, 0)
    newer = Attempt(2, ("n0", "n1", "n2"), None, 0, 0.0, 1)
    finished = (save(44, phase=CheckpointPhase.FRAMEWORK_DONE),)
    for history in (History(), History(incidents=(incident,)), History(incidents=(incident,), attempts=(newer,))):
        situation = Situation(history, View(nodes={}, checkpoints=finished), LAYOUT, AUTO, T0)
        for rule in (stop_restarting, await_seals, recover):
            assert rule(situation) is None


def test_an_ended_run_starts_nothing() -> None:
    scene = training()
    scene.finish_ranks()
    scene.settle()
    for ended, reason in (("finished", Reason.FINISHED), ("stopped", Reason.PLANNED_STOP)):
        scene.history = replace(scene.history, ended=ended)
        decision = decided(scene, View())
        assert isinstance(decision, Finish)
        assert decision.reason is reason


def test_the_ends_of_ranks_that_an_incident_is_about_are_no_finish() -> None:
    """All ended with 0 after the run had stalled: that is not taken for the end of the training."""
    scene = training(APPROVE)
    scene.wait(60)
    scene.settle()
    scene.finish_ranks()
    turn = scene.settle()
    assert not isinstance(turn.decision, Finish | Continue)
    assert scene.history.ended is None


def test_a_save_that_the_run_went_back_behind_is_no_way_back() -> None:
    """Attempt 2 started from 40. The save of step 44 that attempt 1 had made is of another course of the weights."""
    scene = training(save_at=40)
    scene.die(1)
    scene.settle()
    scene.store(save(44))
    back(scene)
    scene.die(2)
    scene.settle()
    assert [a.checkpoint for a in scene.history.attempts] == [None, save_id(40), save_id(40)]
