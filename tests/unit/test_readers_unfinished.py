"""A save that takes far longer than this run's own saves did is told, and it never halts anything by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import training

from policies.decisions import Continue
from policies.facts import SaveCost, SaveView
from policies.reasons import Reason
from policies.unfinished import bound_s, unfinished
from supervisor.journal.entries import CheckpointCompleted


def begun(scene, ago, state="begin"):
    save = SaveView(60, scene.history.attempt.number, scene.now - ago, state)
    scene.change(saves=(save,))


def test_the_bound_comes_from_the_runs_own_saves_with_a_floor():
    scene = training()
    rules = scene.rules
    bare = replace(scene.history, save_costs=())
    assert bound_s(bare, rules) == rules.stall.save_written_s / 2
    quick = replace(bare, save_costs=(SaveCost("a", 1, written_s=4.0), SaveCost("b", 1)))
    assert bound_s(quick, rules) == rules.checkpoint.unfinished_floor_s
    slow = replace(bare, save_costs=(SaveCost("a", 1, written_s=400.0), SaveCost("b", 1, written_s=200.0)))
    assert bound_s(slow, rules) == 1200


@pytest.mark.parametrize(("ago", "state", "told"), [
    (299, "begin", False), (301, "begin", True), (301, "blocked", True), (301, "written", False), (301, "failed", False),
])  # fmt: skip
def test_one_that_is_not_written_is_told_and_nothing_is_done(ago, state, told):
    scene = training()
    scene.say(CheckpointCompleted(SaveCost("x", 1_000, written_s=40.0), 44))
    begun(scene, ago, state)
    text = unfinished(scene.view, scene.history, scene.rules, scene.now)
    assert bool(text) is told
    decision = scene.settle().decision
    assert isinstance(decision, Continue)
    assert (decision.reason is Reason.SAVE_UNFINISHED) is told
    assert set(scene.kinds()) <= {"begin"}  # that it has begun is noted in the store
    if told:
        assert "step 60" in text
        assert "40 s" in text


def test_a_save_of_another_attempt_is_nobodys_business():
    scene = training()
    begun(scene, 10_000)
    scene.view = replace(scene.view, attempt=replace(scene.shown, number=9))
    assert unfinished(scene.view, scene.history, scene.rules, scene.now) == ""
