"""The newest save is broken: told when it is seen, once an attempt, with what a fault would go back to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import LAYOUT, Scene, training

from policies.brokensave import BrokenSave, newest_broken
from policies.facts import UNKNOWN, CheckpointPhase, CheckpointState, Unknown
from policies.situation import Situation
from supervisor.telling.notices import save_broken


def save(step: int, phase: CheckpointPhase, attempt: int = 1) -> CheckpointState:
    reasons = ("BAD_METADATA .metadata: it is cut short\x1b[2J",) if phase is CheckpointPhase.BROKEN else ()
    return CheckpointState(f"a{attempt:04d}-i{step:07d}", attempt, step, phase, reasons=reasons)


WHOLE = save(10, CheckpointPhase.COMPLETED)
BROKEN = save(20, CheckpointPhase.BROKEN)


def seen(
    scene: Scene, *saves: CheckpointState, archive: tuple[CheckpointState, ...] | Unknown = ()
) -> BrokenSave | None:
    view = replace(scene.view, checkpoints=saves, archive=archive)
    return newest_broken(Situation(scene.history, view, LAYOUT, scene.rules, scene.now))


def told_of(scene: Scene, found: BrokenSave | None) -> str:
    told = save_broken(scene.history, found)
    assert told is not None
    return told.text


def test_only_the_newest_judged_save_of_the_newest_attempt_counts() -> None:
    scene = training()
    found = seen(scene, WHOLE, BROKEN, save(30, CheckpointPhase.IN_PROGRESS))
    assert found is not None
    assert found.save == BROKEN
    for saves in ((), (WHOLE,), (BROKEN, save(30, CheckpointPhase.COMPLETED)), (save(20, CheckpointPhase.BROKEN, 7),)):
        assert seen(scene, *saves) is None
    blind = replace(scene.view, checkpoints=UNKNOWN)
    assert newest_broken(Situation(scene.history, blind, LAYOUT, scene.rules, scene.now)) is None


def test_it_is_told_once_with_the_way_back() -> None:
    scene = training()
    history, found = scene.history, seen(scene, WHOLE, BROKEN)
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


COPY = replace(WHOLE, location="archive")


@pytest.mark.parametrize(
    ("archive", "ever", "says"),
    [
        ((), (), "goes back to the begin: no save was ever completed."),
        ((), (WHOLE.id,), "halts the run: no completed save can be used."),
        ((COPY,), (WHOLE.id,), "goes back to a0001-i0000010 in the archive."),
        (UNKNOWN, (WHOLE.id,), "The store has no save to go back to, and the archive can't be read."),
    ],
)
def test_where_a_fault_leads_without_another_save_in_the_store(
    archive: tuple[CheckpointState, ...] | Unknown, ever: tuple[str, ...], says: str
) -> None:
    scene = training()
    scene.history = replace(scene.history, completed=ever)
    assert says in told_of(scene, seen(scene, BROKEN, archive=archive))


def test_a_save_that_the_run_went_back_behind_is_no_way_back() -> None:
    scene = training()
    first = scene.history.attempt
    assert first is not None
    later = replace(first, number=2, start_step=10)
    scene.history = replace(scene.history, attempts=(first, later))
    found = seen(scene, WHOLE, save(30, CheckpointPhase.COMPLETED), save(20, CheckpointPhase.BROKEN, 2))
    assert "goes back to a0001-i0000010." in told_of(scene, found)
