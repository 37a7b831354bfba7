"""What no agent hears is lost to the ledger: a new controller launches only once the plan's nodes have their agents."""

from __future__ import annotations

import pytest
from builders import APPROVE, AUTO, Scene, training

from policies.decisions import Halt, Recover
from policies.rules import Rules
from supervisor.journal.entries import Approved, Refused, Resumed, StopAsked
from supervisor.plan import AGENTS_WAIT_S
from supervisor.remember import AGENTS_TELL_S


def resumed_after_release(*, agents_come: bool) -> Scene:
    """Refused and halted, the nodes let go; a new controller finds them new, without agents, and a person says yes."""
    scene = training(APPROVE)
    scene.die(1)
    scene.settle()
    scene.say(Refused(scene.history.decision_digest or "", "li", "not now"))
    scene.settle()
    scene.wait(60)
    scene.epoch(2)
    scene.obeys = lambda action: agents_come or action.kind != "start-agent"
    for name in ("n0", "n1", "n2", "n3"):
        scene.node(name, agent=False)
    scene.say(Resumed("li", "go on"))
    scene.settle()
    assert isinstance(scene.history.decision, Recover)
    scene.say(Approved(scene.history.decision_digest or "", "li"))
    scene.settle()
    return scene


def test_no_launch_before_the_agents_are_back() -> None:
    scene = resumed_after_release(agents_come=True)
    assert "launch" not in scene.kinds()
    assert scene.last is not None
    assert scene.last.next_look <= scene.now + 1.0  # it looks again soon
    scene.wait(5)
    scene.settle()  # agents are started where none has come back, and the launch follows
    kinds = scene.kinds()
    assert kinds.index("start-agent") < kinds.index("launch")


@pytest.mark.parametrize("before", [True, False])
def test_agents_that_never_come_hold_nothing_up_for_ever(before: bool) -> None:
    scene = resumed_after_release(agents_come=False)
    scene.wait(AGENTS_WAIT_S - 1.0 if before else AGENTS_WAIT_S)
    scene.settle()
    assert ("launch" in scene.kinds()) is not before


def ended_without_a_controller() -> Scene:
    """The ranks end while no controller lives; the next one sees that at once, and no agent has come to it yet."""
    scene = training()
    scene.finish_ranks()
    scene.wait(1)
    scene.epoch(2)
    for name in ("n0", "n1", "n2"):
        scene.node(name, agent=False)
    scene.settle()
    return scene


def test_an_attempt_that_was_taken_over_is_closed_once_the_agents_have_told_what_they_kept() -> None:
    scene = ended_without_a_controller()
    assert scene.history.attempt.closed_at is None
    scene.step(60)  # what the agents had kept
    for name in ("n0", "n1", "n2"):
        scene.node(name, agent=True)
    scene.settle()
    assert scene.history.attempt.ended.step == 60


def test_an_agent_that_never_comes_does_not_keep_an_attempt_open() -> None:
    scene = ended_without_a_controller()
    scene.obeys = lambda action: action.kind != "start-agent"
    scene.wait(AGENTS_TELL_S)
    scene.settle()
    assert scene.history.attempt.closed_at is not None


def test_who_asks_a_halted_run_to_stop_does_not_wait_for_the_hold() -> None:
    """Ctrl-C, or the end of the allocation: nobody looks at the nodes any more."""
    scene = training(Rules.model_validate({**AUTO.model_dump(), "hold_s": 7200.0}))
    scene.lose("n1", "n2")
    scene.settle()
    assert "release" not in scene.kinds()
    scene.say(StopAsked("SIGTERM"))
    scene.settle()
    assert scene.kinds()[-1] == "release"
    assert scene.history.halted is not None


@pytest.mark.parametrize("hold_s", [0.0, 600.0])
def test_a_halt_lets_the_nodes_go_when_they_were_held_long_enough(hold_s: float) -> None:
    """What `relight run` waits for before it ends with 93."""
    scene = training(Rules.model_validate({**AUTO.model_dump(), "hold_s": hold_s}))
    scene.lose("n1", "n2")
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert ("release" in scene.kinds()) is (hold_s == 0)
    scene.wait(hold_s)
    scene.settle()
    assert scene.view.released
    assert scene.kinds().index("stop") < scene.kinds().index("release")
