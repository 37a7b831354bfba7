"""Stories of stopping: what the run does when the same thing comes back, told through the controller's pure part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AUTO, Scene, back, row, save, training
from pydantic import ValidationError

from policies.decisions import Continue, Halt, Recover
from policies.facts import FaultClass, NodeState, Replay, SaveCost
from policies.reasons import Reason
from policies.rules import BudgetRules, QuarantineRules
from supervisor.answers import judge
from supervisor.commands.asking import spans
from supervisor.errors import UserError
from supervisor.journal.entries import Approved, CheckpointCompleted
from supervisor.journal.requests import Request
from supervisor.telling.incident_story import incident_story
from supervisor.telling.plan_page import plan_text

ID = "00001764513622-0badcafe"
FOR_AN_HOUR = AUTO.model_copy(
    update={"quarantine": QuarantineRules(bar_s=3600, soon_steps=0), "budget": BudgetRules(infrastructure=9)}
)


def ask(scene: Scene, what: str, **more: object) -> int:
    """A person's request; its exit code."""
    reply = judge(Request(ID, what, "li", scene.now, **more), scene.history, scene.view, scene.now)  # type: ignore[arg-type]
    scene.say(*reply.entries)
    scene.history = replace(scene.history, requests={})
    return reply.answer.exit


def fails_twice(scene: Scene, first: int = 0, second: int = 1) -> Halt:
    """A rank raises in step 46, and after the restart another one does."""
    scene.die(first, signal=None, code=1)
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    scene.step(45)
    scene.settle()
    scene.die(second, signal=None, code=1)
    decision = scene.settle().decision
    assert isinstance(decision, Halt)
    return decision


def test_the_same_data_twice_halts_and_bars_nobody() -> None:
    scene = training()
    halt = fails_twice(scene)
    assert halt.reason is Reason.SAME_DATA
    assert "Different nodes, the same data" in halt.seen
    assert scene.history.bars == ()
    assert scene.kinds().count("launch") == 1
    scene.wait(10_000)
    assert scene.settle().actions == ()  # halted stays halted


def test_the_same_data_on_the_same_node_cannot_be_told_apart_and_halts() -> None:
    halt = fails_twice(training(), 1, 1)
    assert halt.reason is Reason.SAME_DATA
    assert "each time on n1" in halt.seen


def test_a_person_leaves_samples_out_and_the_run_goes_on_without_them() -> None:
    """Samples 320 to 327 are the first batch after the checkpoint: acceptance expects the next one, and nobody else's."""
    scene = training()
    fails_twice(scene)
    assert ask(scene, "resume", skip_samples=((320, 328),)) == 2  # a reason is asked for
    assert ask(scene, "resume", why="a broken shard", skip_samples=((320, 328),)) == 0
    scene.settle()
    attempt = scene.history.attempt
    assert attempt is not None
    assert (attempt.number, attempt.skip_samples) == (3, ((320, 328),))
    scene.load()
    scene.settle()
    assert scene.history.incidents[-1].fault is FaultClass.ACCEPTANCE  # the ranks told of samples that are left out
    assert "the manifest has 328 to 335" in scene.history.incidents[-1].trouble.text
    story = incident_story(scene.history, 2)
    assert "Left out from here on, by a person: samples 320 to 327." in story


def test_what_the_ranks_read_behind_the_span_is_accepted_and_stays_left_out() -> None:
    scene = training()
    fails_twice(scene)
    ask(scene, "resume", why="a broken shard", skip_samples=((320, 328),))
    scene.settle()
    scene.load()
    moved = {r: replace(one, next_batch=replace(one.next_batch, first=328)) for r, one in scene.shown.loaded.items()}  # type: ignore[type-var]
    step = row(41, 3, scene.now)
    assert step.batch is not None
    step = replace(step, batch=replace(step.batch, first=328))
    scene.change(loaded=moved, first_step=step, last_step=step, frontier=41)
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.accepted_at is not None
    scene.die(1)
    scene.settle()
    assert scene.history.attempt.number == 4
    assert scene.history.attempt.skip_samples == ((320, 328),)


def test_samples_are_left_out_by_a_plan_too_and_its_digest_changes() -> None:
    scene = training(AUTO.model_copy(update={"mode": "approve"}))
    scene.die(1)
    scene.settle()
    before = scene.history.decision_digest
    assert ask(scene, "choose", skip_samples=((400, 408),)) == 0
    scene.settle()
    assert ask(scene, "choose", skip_samples=((408, 416),)) == 0
    scene.settle()
    assert isinstance(scene.history.decision, Recover)
    assert scene.history.decision.skip_samples == ((400, 416),)
    assert scene.history.decision_digest != before
    page = plan_text(scene.history)
    assert "Left out: samples 400 to 415." in page
    assert "As changed by a person: left out samples 400 to 415." in page


def test_a_pause_leaves_no_samples_out() -> None:
    scene = training()
    assert ask(scene, "pause") == 0
    assert ask(scene, "resume", why="x", skip_samples=((1, 2),)) == 2
    assert scene.history.paused


def test_after_a_person_has_lifted_it_the_count_starts_anew() -> None:
    scene = training()
    fails_twice(scene)
    ask(scene, "resume", why="looked at it")
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.number == 3


def test_the_fault_stays_with_the_slot_after_the_swap() -> None:
    """n1, then n3 in its place, is lost: n3 is not barred and a person is asked; the third time it halts."""
    scene = training()
    scene.view = replace(scene.view, nodes={**scene.view.nodes, "n4": replace(scene.view.nodes["n0"], name="n4")})  # type: ignore[index, dict-item]
    scene.view = replace(scene.view, nodes={**scene.view.nodes, "n5": replace(scene.view.nodes["n0"], name="n5")})  # type: ignore[index, dict-item]
    scene.lose("n1")
    scene.settle()
    back(scene)
    scene.lose("n3")
    turn = scene.settle()
    assert turn.decision.reason is Reason.NOT_THE_NODE
    assert turn.held is not None
    assert turn.held.asks
    assert "It stays with the slot" in turn.held.why
    assert [b.node for b in scene.history.bars] == ["n1"]
    scene.say(Approved(scene.history.decision_digest or "", "li"))
    scene.settle()
    back(scene)
    assert scene.history.attempt is not None
    scene.lose(scene.history.attempt.slots[1])
    turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.NOT_THE_NODE


def test_a_node_that_was_barred_before_is_barred_for_good() -> None:
    """n1 comes back after its hour through a check; when it is lost again within 30 days, it does not come back."""
    scene = training(FOR_AN_HOUR)
    scene.lose("n1")
    scene.settle()
    back(scene)
    scene.obeys = lambda action: action.kind != "start-agent"
    scene.node("n1", state=NodeState.UP)
    scene.wait(3601)
    scene.step(50)
    scene.settle()
    assert scene.history.barred(scene.now) == {"n1"}  # up, but nobody answers there: no check
    scene.node("n1", agent=True)
    scene.step(51)
    scene.settle()
    assert scene.history.barred(scene.now) == frozenset()
    scene.store(save(51, 2))
    scene.lose("n0")
    scene.settle()
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots[0] == "n1"
    back(scene)
    scene.lose("n1")
    scene.node("n0", state=NodeState.UP, agent=True)
    scene.wait(3601)
    scene.settle()
    assert [(b.node, b.until is None) for b in scene.history.bars] == [("n1", False), ("n0", False), ("n1", True)]
    assert "for good: n1, barred before" in next(
        e.entry.decision.text
        for e in reversed(scene.stamped)
        if isinstance(getattr(e.entry, "decision", None), Recover)  # type: ignore[union-attr]
    )


def test_without_a_suspect_it_restarts_once_and_then_asks() -> None:
    """No rank moves and none stands apart, twice."""
    scene = training()
    for turn in (1, 2):
        scene.wait(60)
        last = scene.settle()
        if turn == 1:
            assert scene.kinds().count("launch") == 1
            back(scene)
            scene.done.clear()
    assert last.decision.reason is Reason.NO_SUSPECT
    assert last.held is not None
    assert "no suspect, the second time: stall points at nobody" in last.held.why
    assert "launch" not in scene.kinds()


def test_the_breaker_has_its_own_page() -> None:
    scene = training()
    scene.view = replace(
        scene.view,
        nodes={
            **scene.view.nodes,  # type: ignore[dict-item]
            **{f"n{i}": replace(scene.view.nodes["n0"], name=f"n{i}") for i in range(4, 9)},  # type: ignore[index]
        },
    )
    scene.lose("n0", "n1", "n2")
    turn = scene.settle()
    assert turn.decision.reason is Reason.BREAKER
    assert turn.held is not None
    assert "3 nodes barred within an hour (limit 2)" in turn.held.why
    assert scene.history.bars == ()


def off(scene: Scene) -> None:
    """After the restart, three of four losses are off the band."""
    scene.load()
    scene.step(41)
    scene.settle()
    scene.step(44)
    scene.change(replay=Replay(4, 3, 0.5, 42, None, close=3))
    scene.settle()


def test_a_loss_that_stays_off_halts_the_second_time() -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    off(scene)
    assert scene.history.incidents[-1].fault is FaultClass.PROBATION
    assert scene.history.halted is None
    off(scene)
    assert scene.history.halted is not None
    assert scene.history.halted.reason is Reason.LOSS_OFF
    assert scene.history.halted.seen.startswith("Attempt 2: 3 of 4 replayed losses in a row differ")
    assert scene.history.halted.seen.endswith("The same steps up to 45, twice, and twice off")


def test_a_loss_that_is_not_finite_in_the_replay_fails_probation() -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    scene.step(42)
    scene.change(replay=Replay(2, 1, 1e9, 42, None, close=1, not_finite=42), non_finite=row(42, 2, scene.now))
    scene.settle()
    assert scene.history.incidents[-1].fault is FaultClass.PROBATION
    assert "is not finite; before the fault it was" in scene.history.incidents[-1].trouble.text


@pytest.mark.parametrize("crash", [False, True])
def test_budgets_hold_over_a_crash_of_the_controller(crash: bool) -> None:
    """Three restarts are allowed. A controller that dies after each of them remembers every one."""
    scene = training()
    for n in range(4):
        scene.die(n % 3)
        turn = scene.settle()
        if n < 3:
            back(scene)
            scene.step(scene.shown.frontier + 5)
            scene.store(save(scene.shown.frontier, scene.shown.number))
            scene.settle()
        if crash:
            scene.epoch(scene.history.epoch + 1)
            scene.wait(20)
            turn = scene.settle()
    assert isinstance(turn.decision, Halt)
    assert turn.decision.reason is Reason.BUDGET_INFRASTRUCTURE
    assert scene.kinds().count("launch") == 3


def test_too_little_room_is_told_and_nothing_is_deleted() -> None:
    scene = training()
    scene.say(CheckpointCompleted(SaveCost("x", 1_000_000_000), 44))
    for free, decided in ((1_100_000_000, Reason.RUNNING), (1_099_999_999, Reason.NO_ROOM), (None, Reason.RUNNING)):
        scene.view = replace(scene.view, store_free_bytes=free)
        scene.step(scene.shown.frontier + 1)
        decision = scene.settle().decision
        assert isinstance(decision, Continue)
        assert decision.reason is decided
    assert scene.done == []
    scene.view = replace(scene.view, store_free_bytes=0)
    scene.die(1)
    assert scene.settle().decision.reason is not Reason.NO_ROOM  # an incident is another matter


@pytest.mark.parametrize("bad", ["", "8", "8:8", "9:8", "-1:8", "8:9:10", "8:x", "\u0661:9"])
def test_a_span_that_is_none_is_bad_usage(bad: str) -> None:
    with pytest.raises(UserError, match="wanted FIRST:END") as caught:
        spans((bad,))
    assert caught.value.exit_code == 2


def test_spans_come_from_the_command_line() -> None:
    assert spans(("4293000:4301192", "8:9")) == ((4_293_000, 4_301_192), (8, 9))


@pytest.mark.parametrize("span", [(8, 8), (9, 8), (-1, 8), (0, 2**63)])
def test_a_span_in_a_request_is_checked(span: tuple[int, int]) -> None:
    """Whoever writes into requests/ is not trusted."""
    with pytest.raises(ValidationError):
        Request(ID, "resume", "li", 1.0, skip_samples=(span,))
