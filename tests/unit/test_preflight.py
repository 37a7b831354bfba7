"""A spare counts as hot once its checks are told, and takes a slot only after it has looked at itself anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, AUTO, LAYOUT, Scene, nodes, training

from policies import readiness
from policies.decisions import Halt, Recover, Wait
from policies.facts import NodeState, View
from policies.reasons import Reason
from policies.spares import NOT_CHECKED, NOT_CHECKED_AGAIN, Asked, why_not
from supervisor import actions
from supervisor.actions import Action
from supervisor.journal.entries import Resumed, Settled, Withdrawn
from supervisor.looked import look_of, view_of

CHECK_S = AUTO.node.check_s


def slow(action: Action) -> bool:
    """A world in which no agent has answered yet."""
    return not isinstance(action, actions.Check)


def lost(rules=AUTO, spares: int = 1) -> Scene:
    """A node is lost, its attempt is stopped, and nobody has answered yet."""
    scene = training(rules)
    scene.view = replace(scene.view, nodes=nodes(3 + spares))
    scene.obeys = slow
    scene.lose("n1")
    scene.settle()
    return scene


def answers(scene: Scene, name: str, **what: object) -> None:
    scene.node(name, checked_for=1, **what)


def withdrawn(scene: Scene) -> list[str]:
    return [s.entry.why for s in scene.stamped if isinstance(s.entry, Withdrawn)]


def test_spares_are_asked_before_anything_is_stopped_and_the_launch_waits_for_the_answer() -> None:
    scene = lost()
    kinds = [a.kind for a in scene.done]
    assert kinds.index("check") < kinds.index("stop")
    assert scene.of("check") == [actions.Check("n3", 1)]
    assert kinds[-1] == "make-view"  # all but the launch is done meanwhile
    assert isinstance(scene.history.decision, Recover)
    answers(scene, "n3")
    scene.settle()
    assert scene.kinds()[-1] == "launch"
    assert "check:1:n3" not in scene.history.intents


def test_a_restart_in_place_waits_for_no_spare() -> None:
    scene = training()
    scene.obeys = slow
    scene.die(0)
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_an_unhealthy_answer_takes_the_next_spare() -> None:
    scene = lost(spares=2)
    answers(scene, "n3", unhealthy=("gpus: 7 of 8",))
    answers(scene, "n4")
    scene.settle()
    assert withdrawn(scene) == ["n3 is unhealthy: gpus: 7 of 8"]
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots == ("n0", "n4", "n2")


def test_what_could_not_be_checked_is_in_no_ones_way() -> None:
    scene = lost()
    answers(scene, "n3", unchecked=("nvrx: not installed",))
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_spare_that_never_answers_is_passed_over_in_time() -> None:
    scene = lost(spares=2)
    answers(scene, "n4")
    turn = scene.settle()
    assert "launch" not in scene.kinds()
    assert turn.next_look <= scene.now + CHECK_S
    scene.wait(CHECK_S)
    scene.settle()
    assert withdrawn(scene) == ["n3 was not checked again within 60 s, as it was asked to"]
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots == ("n0", "n4", "n2")


def test_with_no_other_spare_it_halts_and_says_why() -> None:
    scene = lost()
    scene.wait(CHECK_S)
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.NO_SPARE
    assert f"n3 {NOT_CHECKED_AGAIN}" in turn.decision.seen


def test_an_agent_that_is_new_has_its_own_time() -> None:
    """It was away when the question was asked: what has just come is not late."""
    scene = lost()
    scene.wait(CHECK_S - 1)
    scene.node("n3", agent_since=scene.now)
    scene.wait(CHECK_S - 1)
    assert isinstance(scene.settle().decision, Recover)
    answers(scene, "n3")
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_new_controller_asks_again_and_waits_again() -> None:
    scene = lost()
    scene.wait(CHECK_S - 1)
    scene.epoch(2)
    scene.wait(CHECK_S - 1)
    scene.done.clear()
    assert isinstance(scene.settle().decision, Recover)
    assert scene.of("check") == [actions.Check("n3", 1)]


def test_not_checked_yet_is_waited_for_and_not_for_ever() -> None:
    scene = training()
    scene.obeys = slow
    scene.node("n3", checked_at=None, agent_since=scene.now)
    scene.lose("n1")
    turn = scene.settle()
    assert isinstance(turn.decision, Wait)
    assert turn.decision.reason is Reason.NO_SPARE
    scene.wait(CHECK_S / 2)
    scene.node("n3", checked_at=scene.now, checked_for=1)
    scene.settle()
    assert scene.kinds()[-1] == "launch"
    late = training()
    late.obeys = slow
    late.node("n3", checked_at=None, agent_since=late.now)
    late.lose("n1")
    late.settle()
    late.wait(CHECK_S)
    turn = late.settle()
    assert isinstance(turn.decision, Halt)
    assert f"n3 {NOT_CHECKED}" in turn.decision.seen


def test_a_plan_that_waits_for_a_person_does_not_outlive_the_health_of_its_spare() -> None:
    scene = lost(APPROVE, spares=2)
    answers(scene, "n3")
    answers(scene, "n4")
    scene.settle()
    before = scene.history.decision_digest
    scene.wait(1000)
    scene.node("n3", unhealthy=("command nhc: check_fs_mount",))
    scene.settle()
    assert scene.history.decision_digest != before
    decision = scene.history.decision
    assert isinstance(decision, Recover)
    assert decision.slots == ("n0", "n4", "n2")


def test_a_halted_run_asks_nobody_and_a_resumed_one_asks_anew() -> None:
    scene = lost()
    scene.wait(CHECK_S)
    scene.settle()
    scene.done.clear()
    scene.wait(500)
    scene.settle()
    assert scene.of("check") == []
    scene.say(Resumed("li", "the agent was started anew"))
    assert isinstance(scene.settle().decision, Recover)
    assert scene.of("check") == [actions.Check("n3", 1)]
    answers(scene, "n3")
    scene.settle()
    assert scene.kinds()[-1] == "launch"


def test_a_question_that_nobody_needs_any_more_is_over() -> None:
    scene = lost(spares=2)
    answers(scene, "n3")
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    assert scene.history.incident is None
    over = [s.entry.outcome for s in scene.stamped if isinstance(s.entry, Settled) and s.entry.key == "check:1:n4"]
    assert over == ["moot"]
    assert not any(key.startswith("check:") for key in scene.history.intents)


@pytest.mark.parametrize(
    ("checked_at", "checked_for", "now", "why"),
    [
        (None, 0, 0.0, NOT_CHECKED),
        (5.0, 0, 9.9, None),
        (5.0, 0, 10.0, NOT_CHECKED_AGAIN),
        (5.0, 1, 10.0, NOT_CHECKED_AGAIN),
        (5.0, 2, 10.0, None),
        (5.0, 3, 10.0, None),
    ],
)
def test_why_a_node_is_no_hot_spare(checked_at: float | None, checked_for: int, now: float, why: str | None) -> None:
    one = replace(nodes()["n3"], checked_at=checked_at, checked_for=checked_for)
    assert why_not(one, (), (), Asked(2, 10.0, 60.0, now)) == why


def test_a_first_start_takes_a_node_with_a_fault_only_where_there_is_no_other() -> None:
    seen = nodes(4)
    seen["n1"] = replace(seen["n1"], unhealthy=("gpus: 7 of 8",))
    assert readiness.first(3, seen, ()) == ("n0", "n2", "n3")
    assert readiness.first(4, seen, ()) == ("n0", "n1", "n2", "n3")


def test_the_journal_keeps_what_the_choice_hung_on() -> None:
    scene = lost(spares=3)
    answers(scene, "n3")
    scene.node("n5", checked_at=None)
    kept = view_of(look_of(scene.view, scene.history, LAYOUT.world), LAYOUT.world)
    assert scene.history.attempt is not None
    asked = Asked(1, 0.0, 60.0, scene.now)

    def told(view: View) -> dict[str, str | None]:
        assert not isinstance(view.nodes, str)
        return {n: why_not(one, scene.history.attempt.slots, (), asked) for n, one in view.nodes.items()}  # type: ignore[union-attr]

    assert told(kept) == told(scene.view)
    assert told(kept) == {
        **dict.fromkeys(("n0", "n1", "n2"), "holds a slot"),
        "n3": None,
        "n4": NOT_CHECKED_AGAIN,
        "n5": NOT_CHECKED,
    }


def test_only_nodes_that_could_take_a_slot_are_asked() -> None:
    scene = training()
    scene.view = replace(scene.view, nodes=nodes(7))
    scene.node("n4", drained_by_other=True)
    scene.node("n5", state=NodeState.SILENT)
    scene.node("n6", agent=False)
    scene.obeys = lambda action: slow(action) and not isinstance(action, actions.StartAgent)
    scene.lose("n1")
    scene.settle()
    assert scene.of("check") == [actions.Check("n3", 1)]
