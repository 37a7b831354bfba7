"""What no agent hears is lost to the ledger: a new controller launches only once the plan's nodes have their agents."""

from __future__ import annotations

import pytest
from builders import APPROVE, Scene, training

from policies.facts import Recover
from supervisor.journal.entries import Approved, Refused, Resumed
from supervisor.tick import AGENTS_WAIT_S


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
