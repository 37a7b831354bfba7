"""The newest save is broken: told when it is seen, once an attempt, with what a fault would go back to."""

from __future__ import annotations

from dataclasses import replace

from builders import training

from policies.brokensave import newest_broken
from policies.facts import UNKNOWN, CheckpointPhase, CheckpointState
from supervisor.telling.notices import save_broken


def save(step: int, phase: CheckpointPhase, attempt: int = 1) -> CheckpointState:
    reasons = ("BAD_METADATA .metadata: it is cut short\x1b[2J",) if phase is CheckpointPhase.BROKEN else ()
    return CheckpointState(f"a{attempt:04d}-i{step:07d}", attempt, step, phase, reasons=reasons)


WHOLE = save(10, CheckpointPhase.COMPLETED)
BROKEN = save(20, CheckpointPhase.BROKEN)


def test_only_the_newest_judged_save_of_the_newest_attempt_counts() -> None:
    scene = training()
    view = replace(scene.view, checkpoints=(WHOLE, BROKEN, save(30, CheckpointPhase.IN_PROGRESS)))
    found = newest_broken(view, scene.history)
    assert found is not None
    assert (found.save, found.before) == (BROKEN, WHOLE.id)
    for checkpoints in ((), (WHOLE,), (BROKEN, save(30, CheckpointPhase.COMPLETED)), UNKNOWN):
        assert newest_broken(replace(view, checkpoints=checkpoints), scene.history) is None
    assert newest_broken(replace(view, checkpoints=(save(20, CheckpointPhase.BROKEN, 7),)), scene.history) is None
    alone = newest_broken(replace(view, checkpoints=(BROKEN,)), scene.history)
    assert alone is not None
    assert alone.before is None


def test_it_is_told_once_with_the_way_back() -> None:
    history = training().history
    found = newest_broken(replace(training().view, checkpoints=(WHOLE, BROKEN)), history)
    told = save_broken(history, found)
    assert told is not None
    assert told.text.splitlines() == [
        f"relight {history.run}: the newest save is broken, look at it soon (save-broken)",
        "a0001-i0000020: BAD_METADATA .metadata: it is cut short.",
        "A fault now goes back to a0001-i0000010. Nothing is stopped for it.",
        "Read: relight runbook save-broken",
    ]
    assert save_broken(replace(history, told=frozenset({told.key})), found) is None
    assert save_broken(history, None) is None
    alone = save_broken(history, newest_broken(replace(training().view, checkpoints=(BROKEN,)), history))
    assert alone is not None
    assert "goes back to the begin: no completed save is left." in alone.text
