"""What is made of a request: refused with the reason, or done and journaled; the same one only once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import APPROVE, Scene, save, save_id, training

from policies.facts import UNKNOWN, CheckpointPhase, View
from policies.history import Choice, Halted, History
from policies.reasons import Reason
from supervisor.answers import Reply, judge, not_before
from supervisor.journal.entries import (
    Approved,
    Chosen,
    HaltedEntry,
    Paused,
    Refused,
    RequestAnswered,
    Resumed,
    StopAsked,
)
from supervisor.journal.requests import Request

ID = "00000000001000-0a0b0c0d"


def ask(scene: Scene, what: str, **more: object) -> Reply:
    """File it, and journal what is made of it."""
    request = Request(ID[:-1] + str(len(scene.stamped) % 10), what, "li", 1.0, **more)  # type: ignore[arg-type]
    reply = judge(request, scene.history, scene.view, scene.now)
    assert isinstance(reply.entries[-1], RequestAnswered)
    assert reply.entries[-1].outcome == reply.answer.outcome
    assert (reply.answer.outcome == "done") == (reply.answer.exit == 0)
    return reply


@pytest.fixture
def waiting() -> Scene:
    """A plan waits for a person: n1 is lost."""
    scene = training(APPROVE)
    scene.store(save(30), save(20, phase=CheckpointPhase.BROKEN))
    scene.lose("n1")
    scene.settle()
    assert scene.history.decision_digest is not None
    return scene


def plan_of(scene: Scene) -> str:
    return scene.history.decision_digest or ""


def test_a_plan_is_approved_by_six_characters_or_more(waiting: Scene) -> None:
    for digest in (plan_of(waiting)[:6], plan_of(waiting)):
        assert ask(waiting, "approve", digest=digest).entries[0] == Approved(plan_of(waiting), "li")
    short = ask(waiting, "approve", digest=plan_of(waiting)[:5]).answer
    assert (short.outcome, short.exit) == ("refused", 2)


def test_another_plan_is_refused_and_the_open_one_is_named(waiting: Scene) -> None:
    reply = ask(waiting, "approve", digest="0" * 16)
    assert len(reply.entries) == 1
    assert reply.answer.exit == 4
    assert plan_of(waiting)[:6] in reply.answer.text


def test_approved_twice_is_said_and_journaled_once(waiting: Scene) -> None:
    waiting.say(*ask(waiting, "approve", digest=plan_of(waiting)).entries)
    again = ask(waiting, "approve", digest=plan_of(waiting))
    assert "already" in again.answer.text
    assert len(again.entries) == 1


def test_a_refusal_takes_a_reason(waiting: Scene) -> None:
    assert ask(waiting, "refuse", digest=plan_of(waiting), why="  ").answer.exit == 2
    assert ask(waiting, "refuse", digest=plan_of(waiting), why="no").entries[0] == Refused(plan_of(waiting), "li", "no")


@pytest.mark.parametrize("what", ["approve", "refuse", "choose"])
def test_no_plan_is_open(what: str) -> None:
    scene = training()
    assert ask(scene, what, digest="0" * 16, checkpoint=save_id(40)).answer.exit == 4
    first_start = Scene()
    first_start.obeys = lambda _: False
    first_start.tick()
    assert first_start.history.decision_digest
    assert "no plan is open" in ask(first_start, what, digest=plan_of(first_start)).answer.text


def test_a_plan_is_changed_bit_by_bit(waiting: Scene) -> None:
    waiting.say(*ask(waiting, "choose", checkpoint=save_id(30)).entries)
    entry = ask(waiting, "choose", spares=("n3",), keep_nodes=("n1",))
    assert entry.answer.outcome == "refused"  # the plan is open again only at the next look
    waiting.settle()
    chosen = ask(waiting, "choose", spares=("n3",), keep_nodes=("n1",)).entries[0]
    assert chosen == Chosen(Choice(save_id(30), ("n3",), ("n1",)), "li")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"checkpoint": save_id(20)}, "is not a completed one"),
        ({"checkpoint": "nonsense"}, "Completed: "),
        ({"spares": ("n9",)}, "n9 is no node of this run"),
        ({"spares": ("n0",)}, "n0 can't be a spare: holds a slot"),
        ({"keep_nodes": ("n9",)}, "n9 is no node of this run"),
    ],
)
def test_what_is_not_there_cannot_be_chosen(more: dict[str, object], said: str, waiting: Scene) -> None:
    reply = ask(waiting, "choose", **more)
    assert (reply.answer.exit, len(reply.entries)) == (2, 1)
    assert said in reply.answer.text


def test_what_cannot_be_seen_cannot_be_chosen(waiting: Scene) -> None:
    waiting.view = replace(waiting.view, nodes=UNKNOWN, checkpoints=UNKNOWN)
    assert "Completed: none" in ask(waiting, "choose", checkpoint=save_id(40)).answer.text
    assert ask(waiting, "choose", spares=("n3",)).answer.exit == 2


def test_pause_and_resume() -> None:
    scene = training()
    assert ask(scene, "resume").answer.exit == 4
    scene.say(*ask(scene, "pause", why="w").entries)
    assert scene.history.paused
    assert len(ask(scene, "pause").entries) == 1
    assert ask(scene, "resume").entries[0] == Resumed("li", "")
    assert Paused("li", "w") in [s.entry for s in scene.stamped]


def test_lifting_a_halt_takes_a_reason() -> None:
    scene = training()
    scene.say(*ask(scene, "halt", why="fire").entries)
    assert scene.history.halted is not None
    assert scene.history.halted.seen == "li asked for it: fire"
    assert scene.history.asked_to_halt
    assert "already" in ask(scene, "halt").answer.text
    assert ask(scene, "resume", why=" ").answer.exit == 2
    assert ask(scene, "resume", why="out").entries[0] == Resumed("li", "out")


def test_a_halt_of_our_own_that_left_ranks_running_becomes_a_persons_halt() -> None:
    """A stall without a spare: halted, the ranks left as they stand. A person's halt stops them."""
    scene = training(APPROVE)
    scene.lose("n3")
    scene.wait(60)
    scene.change(behind=(1,))
    scene.settle()
    assert scene.history.halted is not None
    entry = ask(scene, "halt").entries[0]
    assert isinstance(entry, HaltedEntry)
    assert (entry.reason, entry.incident) == (Reason.PERSON_HALTED, 1)
    scene.say(entry)
    scene.settle()
    assert "already" in ask(scene, "halt").answer.text


def test_a_run_that_was_halted_before_its_first_start_is_halted_already() -> None:
    halted = replace(History(), halted=Halted(1.0, Reason.NO_CHECKPOINT, "", ""))
    reply = judge(Request(ID, "halt", "li", 1.0), halted, View(), 2.0)
    assert "already" in reply.answer.text


def test_stop() -> None:
    scene = training()
    assert ask(scene, "stop").entries[0] == StopAsked("li")
    assert judge(Request(ID, "stop", "li", 1.0), History(), View(), 2.0).answer.exit == 4
    assert (
        judge(Request(ID, "stop", "li", 1.0), replace(scene.history, ended="finished"), scene.view, 2.0).answer.exit
        == 4
    )


def test_a_request_is_answered_once() -> None:
    """Its answer was lost in a crash: it is told again, and nothing is done again."""
    scene = training()
    request = Request(ID, "pause", "li", 1.0)
    scene.say(*judge(request, scene.history, scene.view, scene.now).entries)
    again = judge(request, scene.history, scene.view, scene.now)
    assert again.entries == ()
    assert again.answer.exit == 0


def test_what_was_refused_is_refused_again() -> None:
    """The controller died between the journal and the answer: the person must not read that it was done."""
    scene = training()
    request = Request(ID, "approve", "li", 1.0, digest="0" * 16)
    first = judge(request, scene.history, scene.view, scene.now)
    scene.say(*first.entries)
    assert judge(request, scene.history, scene.view, scene.now).answer == first.answer
    assert (first.answer.outcome, first.answer.exit) == ("refused", 4)


def test_a_choice_waits_for_agents_and_for_sight() -> None:
    scene = training()
    request = Request(ID, "choose", "li", 1.0, spares=("n3",))
    assert not_before(request, scene.history, scene.view) is None
    assert not_before(request, scene.history, replace(scene.view, nodes=UNKNOWN)) == float("inf")
    assert not_before(request, scene.history, replace(scene.view, checkpoints=UNKNOWN)) == float("inf")
    scene.node("n3", agent=False)
    assert not_before(request, scene.history, scene.view) == scene.history.epoch_began_at + 15.0
    assert not_before(replace(request, what="pause"), scene.history, scene.view) is None


def test_a_halted_run_is_resumed_with_a_node_kept() -> None:
    scene = training()
    ask = Request(ID, "resume", "li", 1.0, why="cable reseated", keep_nodes=("n1",))
    assert judge(ask, scene.history, scene.view, 2.0).answer.exit == 4
    halted = replace(scene.history, halted=Halted(1.0, Reason.NO_SPARE, "", ""))
    assert judge(replace(ask, keep_nodes=("n9",)), halted, scene.view, 2.0).answer.exit == 2
    assert not_before(ask, halted, replace(scene.view, nodes=UNKNOWN)) == float("inf")
    reply = judge(ask, halted, scene.view, 2.0)
    assert "not barred for this incident: n1" in reply.answer.text
    scene.say(*reply.entries)
    assert scene.history.choice.keep_nodes == ("n1",)
