"""That a barred node was not drained is journaled once a run, and a new controller knows it."""

from dataclasses import replace

from builders import Scene, training

from supervisor import actions
from supervisor.journal.entries import DrainRefused, Settled

KEY = "bar:1:n1"


def test_a_refusal_is_journaled_once_and_outlives_the_controller() -> None:
    scene = training()
    scene.lose("n1")
    scene.settle()
    scene.view = replace(scene.view, drain_refused="Invalid user id")
    scene.settle()
    scene.epoch(2)
    scene.view = replace(scene.view, drain_refused="")  # the new one has asked nobody yet
    scene.settle()
    scene.view = replace(scene.view, drain_refused="Slurm is away")
    scene.settle()
    assert [s.entry.why for s in scene.stamped if isinstance(s.entry, DrainRefused)] == ["Invalid user id"]
    assert scene.history.drain_refused == "Invalid user id"


def bars(scene: Scene) -> list[str]:
    return [b.node for b in scene.history.bars]


def hears(scene: Scene, action: actions.Action) -> bool:
    """The cluster is back: what is asked of it now does not fail."""
    if isinstance(action, actions.Bar):
        scene.view = replace(scene.view, failures=())
    return True


def outcomes(scene: Scene, key: str) -> list[str]:
    return [s.entry.outcome for s in scene.stamped if isinstance(s.entry, Settled) and s.entry.key == key]


def test_a_bar_that_the_cluster_did_not_hear_is_asked_for_again_and_holds_up_nothing() -> None:
    scene = training()
    scene.lose("n1")
    scene.view = replace(scene.view, failures=((KEY, "slurmctld is away"),))
    scene.settle()
    assert scene.kinds()[-1] == "launch"
    assert outcomes(scene, KEY) == ["failed"]
    scene.wait(11)
    scene.settle()
    assert scene.of("bar") == [actions.Bar(("n1",), 1, None)] * 2
    assert bars(scene) == ["n1"]
    assert scene.history.incidents[0].barred == ("n1",)
    scene.obeys = lambda action: hears(scene, action)
    scene.wait(21)
    scene.settle()
    assert outcomes(scene, KEY)[-1] == "seen"
    assert KEY not in scene.history.intents
    scene.wait(1000)
    scene.settle()
    assert len(scene.of("bar")) == 3


def test_a_bar_that_was_being_asked_for_when_the_controller_died_is_asked_for_again() -> None:
    scene = training()
    scene.lose("n1")
    scene.view = replace(scene.view, at_work=frozenset({KEY}))
    scene.settle()
    assert outcomes(scene, KEY) == []
    scene.epoch(2)
    scene.view = replace(scene.view, at_work=frozenset())
    scene.settle()
    assert len(scene.of("bar")) == 2
    assert outcomes(scene, KEY) == ["seen"]
    assert bars(scene) == ["n1"]
