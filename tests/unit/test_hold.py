"""To hold a plan is to pause the run: it stays open, may be approved meanwhile, and is carried out when that is lifted."""

from console_run import waiting

from supervisor.journal.entries import Approved, Paused, Resumed


def test_a_plan_is_held_by_a_pause_and_carried_out_when_it_is_lifted():
    scene = waiting("x")
    digest = scene.history.decision_digest
    scene.say(Paused("li", "a switch is being replaced"))
    scene.settle()
    scene.say(Approved(digest, "li"))
    scene.settle()
    assert scene.history.decision_digest == digest
    assert len(scene.history.attempts) == 1
    scene.say(Resumed("li", ""))
    scene.settle()
    assert len(scene.history.attempts) == 2
    assert scene.history.incidents[0].approved_by == "li"


def test_without_a_pause_it_is_carried_out_at_once():
    scene = waiting("x")
    scene.say(Approved(scene.history.decision_digest, "li"))
    scene.settle()
    assert len(scene.history.attempts) == 2
