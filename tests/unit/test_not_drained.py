"""That a barred node was not drained is journaled once a run, and a new controller knows it."""

from dataclasses import replace

from builders import training

from supervisor.journal.entries import DrainRefused


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
