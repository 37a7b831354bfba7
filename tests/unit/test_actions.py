"""Effects as values: two with the same key are the same effect, and each can be seen to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from builders import nodes, save, save_id, show

from policies.facts import UNKNOWN, AttemptView, CheckpointPhase, Counters, JobPhase, JobView, View
from supervisor import actions
from supervisor.actions import Action, is_done, key
from supervisor.journal.entries import ENTRY, Intended

IN_PROGRESS, FRAMEWORK_DONE = CheckpointPhase.IN_PROGRESS, CheckpointPhase.FRAMEWORK_DONE
ALL: list[Action] = [
    actions.StartAgent("n1"),
    actions.Check("n2", 1),
    actions.Capture(1, 1, stacks=True),
    actions.Fence(1),
    actions.Stop(1),
    actions.Begin((save_id(40),)),
    actions.Seal(save_id(41)),
    actions.Abandon((save_id(40),)),
    actions.Retain(save_id(30), 1, (save_id(10),)),
    actions.Restore(save_id(50)),
    actions.Archive(save_id(30), (save_id(20),)),
    actions.Scrub(save_id(30), 5.0),
    actions.Bar(("n1",), 1, None),
    actions.Unbar("n1", 1),
    actions.MakeView(2, save_id(30)),
    actions.Launch(2, 1, ("n0", "n1", "n2"), save_id(30), Counters(30, 240, 30, 0, 0.1), 1),
    actions.AskStop(1),
    actions.NextJob("12", "s", ("n1",)),
    actions.Release(),
]
BY_INTENT = (actions.Bar, actions.Unbar, actions.Begin)  # their intent alone is what is needed


def before() -> View:
    known = nodes()
    known["n1"] = replace(known["n1"], agent=False)
    saves = (save(10), save(20), save(30, read_at=5.0), save(40, phase=IN_PROGRESS), save(41, phase=FRAMEWORK_DONE))
    return View(
        has_archive=True,
        archive=(save(50, location="archive"),),
        nodes=known,
        attempt=AttemptView(1, True),
        checkpoints=saves,
        launched=frozenset({1}),
        steps_running=frozenset({1}),
        job=JobView("12", "s", JobPhase.RUNNING, "RUNNING"),
    )


def test_every_kind_of_action_is_here() -> None:
    assert {type(a) for a in ALL} == set(get_args(Action))
    assert {a.kind for a in ALL} >= set(actions.RETRY_S)


@pytest.mark.parametrize("action", ALL, ids=lambda a: a.kind)
def test_an_action_is_not_done_until_the_world_shows_it(action: Action) -> None:
    view = before()
    assert is_done(action, view) == isinstance(action, BY_INTENT)
    once = show(view, action)
    assert is_done(action, once)
    assert show(once, action) == once  # twice is as good as once


@pytest.mark.parametrize("action", ALL, ids=lambda a: a.kind)
def test_nothing_is_done_in_a_world_that_cannot_be_seen(action: Action) -> None:
    """Unknown is never taken for done."""
    assert is_done(action, View()) == isinstance(action, BY_INTENT)


def test_keys_are_distinct() -> None:
    others = [
        actions.StartAgent("n2"),
        actions.Capture(2, 1, stacks=True),
        actions.Fence(2),
        actions.Stop(2),
        actions.MakeView(2, None),
        actions.MakeView(3, save_id(30)),
        actions.Bar(("n1",), 2, None),
        actions.Bar(("n2",), 1, None),
    ]
    keys = [key(a) for a in (*ALL, *others)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("action", ALL, ids=lambda a: a.kind)
def test_an_action_survives_the_journal(action: Action) -> None:
    assert ENTRY.validate_json(ENTRY.dump_json(Intended(action))) == Intended(action)


def test_only_what_nothing_needs_is_superfluous() -> None:
    view = before()
    assert actions.superfluous(view, 1, ()) == (save_id(10), save_id(20))
    assert actions.superfluous(view, 1, (save_id(10),)) == (save_id(20),)
    assert actions.superfluous(view, 5, ()) == ()
    assert actions.superfluous(replace(view, checkpoints=UNKNOWN), 1, ()) == ()


@pytest.mark.parametrize("phase", [CheckpointPhase.BROKEN, CheckpointPhase.ABANDONED, CheckpointPhase.COMPLETED])
def test_a_seal_is_settled_by_a_verdict_of_any_kind(phase: CheckpointPhase) -> None:
    assert is_done(actions.Seal(save_id(41)), replace(before(), checkpoints=(save(41, phase=phase),)))
    assert not is_done(
        actions.Seal(save_id(41)), replace(before(), checkpoints=(save(41, phase=CheckpointPhase.NOT_YET),))
    )
