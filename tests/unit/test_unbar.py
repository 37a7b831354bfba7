"""A person lifts the bar of a repaired node: it comes back through its check, in the next job too, and is not forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import Scene, training
from click.testing import CliRunner
from console_run import journaled
from test_leaving import JOB, ends_in

from policies.facts import UNKNOWN, NodeState
from policies.quarantine import for_good, on_probation, returning
from supervisor import actions
from supervisor.answers import Reply, judge
from supervisor.commands.unbar import command
from supervisor.errors import NOT_YET_EXIT, UserError
from supervisor.journal.entries import ModeSet, Paused, Resumed, Unbarred
from supervisor.journal.requests import Request
from supervisor.telling.plan_page import past_of, past_text
from supervisor.telling.spares_line import spares_lines
from supervisor.telling.story import Known

ID = "00000000001000-0a0b0c0d"


def unbar(scene: Scene, *nodes: str) -> Reply:
    request = Request(ID, "unbar", "li", scene.now, nodes=nodes, why="board replaced")
    return judge(request, scene.history, scene.view, scene.now)


@pytest.fixture
def swapped() -> Scene:
    """n1 was lost and barred, n3 has its slot."""
    scene = training()
    scene.lose("n1")
    scene.settle()
    assert scene.history.barred(scene.now) == {"n1"}
    assert scene.history.attempt is not None
    assert scene.history.attempt.slots == ("n0", "n3", "n2")
    scene.done.clear()
    return scene


def repaired(scene: Scene) -> None:
    scene.node("n1", state=NodeState.UP, agent=True, checked_at=scene.now)


def test_a_repaired_node_is_a_spare_again_once_its_check_passes(swapped: Scene) -> None:
    reply = unbar(swapped, "n1")
    assert reply.answer.exit == 0
    assert reply.entries[0] == Unbarred(("n1",), "li", "board replaced")
    assert reply.answer.text == (
        "bar lifted: n1; a spare again, the last to be used, once the checks pass. Not yet: n1 (its state is down)"
    )
    swapped.say(*reply.entries)
    swapped.settle()
    assert swapped.history.barred(swapped.now) == {"n1"}  # nothing is believed of it
    assert spares_lines(swapped.history, swapped.view, swapped.now)[-1].startswith(
        "Bar over, back once the checks pass: n1 (its state is "
    )
    swapped.node("n1", state=NodeState.UP, agent=True, unhealthy=("gpus: 7 of 8",), checked_at=swapped.now)
    swapped.settle()
    assert swapped.history.barred(swapped.now) == {"n1"}
    swapped.node("n1", unhealthy=())
    swapped.settle()
    assert swapped.history.barred(swapped.now) == frozenset()
    swapped.load()
    swapped.step(41)
    swapped.settle()
    swapped.lose("n2")
    swapped.settle()
    assert swapped.history.attempt is not None
    assert swapped.history.attempt.slots == ("n0", "n3", "n1")


def test_a_repaired_node_that_nobody_has_unbarred_stays_out(swapped: Scene) -> None:
    repaired(swapped)
    swapped.settle()
    assert swapped.history.barred(swapped.now) == {"n1"}
    assert returning(swapped.history, swapped.view.nodes, 1e12) == ()  # type: ignore[arg-type]


def test_our_drain_is_lifted_at_once_and_once(swapped: Scene) -> None:
    """A node that is drained can't be in a job in which it could be checked."""
    swapped.settle()
    assert swapped.of("unbar") == []
    swapped.say(*unbar(swapped, "n1").entries)
    swapped.settle()
    assert swapped.of("unbar") == [actions.Unbar("n1", 1)]
    repaired(swapped)
    swapped.settle()
    assert swapped.of("unbar") == [actions.Unbar("n1", 1)]


def test_a_drain_that_failed_is_not_tried_again_after_the_bar_is_lifted() -> None:
    scene = training()
    scene.lose("n1")
    scene.obeys = lambda action: not isinstance(action, actions.Bar)
    while not scene.of("bar"):
        scene.tick()
    scene.view = replace(scene.view, failures=((actions.key(scene.of("bar")[0]), "Slurm is away"),))
    scene.tick()
    scene.say(*unbar(scene, "n1").entries)
    scene.wait(1000)
    scene.settle()
    assert len(scene.of("bar")) == 1


def test_what_it_did_before_is_not_forgotten(swapped: Scene) -> None:
    swapped.say(*unbar(swapped, "n1").entries)
    repaired(swapped)
    swapped.settle()
    later = replace(swapped.history.incidents[0], number=2)
    history = replace(swapped.history, incidents=(*swapped.history.incidents, later))
    assert for_good("n1", 2, history, swapped.rules.quarantine)
    assert on_probation(history, swapped.rules.quarantine, swapped.now) == {"n1"}
    told = past_text(past_of(swapped.history, later, "n1"), Known())
    assert "(lifted by li), back since" in told


def test_what_is_not_barred_is_refused_and_the_barred_are_named(swapped: Scene) -> None:
    for nodes in (("n2",), ("n1", "n2"), ("nosuch",)):
        wrong = unbar(swapped, *nodes)
        assert (wrong.answer.exit, len(wrong.entries)) == (2, 1)
        assert wrong.answer.text == f"{nodes[-1]} is not barred. Barred: n1"
    assert unbar(training(), "n1").answer.text == "n1 is not barred. Barred: none"
    assert unbar(swapped).answer.text == "no node is named. Barred: n1"


def test_what_is_not_barred_is_refused_at_once_where_nobody_would_hear_the_refusal(
    swapped: Scene, tmp_path: Path
) -> None:
    run = journaled(tmp_path, swapped)
    for names in (["n7"], ["n1", "n7"], [""]):
        told = CliRunner().invoke(command, [run.root, *names]).exception
        assert isinstance(told, UserError)
        assert "Barred: n1" in str(told)
    assert CliRunner().invoke(command, [run.root, "n1"], standalone_mode=False).return_value == NOT_YET_EXIT


def test_lifted_twice_is_said_and_journaled_once(swapped: Scene) -> None:
    swapped.say(*unbar(swapped, "n1").entries[:1])
    again = unbar(swapped, "n1")
    assert "lifted already: n1" in again.answer.text
    assert len(again.entries) == 1


def test_it_can_be_said_while_nothing_can_be_seen(swapped: Scene) -> None:
    swapped.view = replace(swapped.view, nodes=UNKNOWN)
    assert unbar(swapped, "n1").answer.exit == 0


@pytest.mark.parametrize("lifted", [True, False])
def test_the_next_job_may_have_a_node_whose_bar_is_over(lifted: bool) -> None:
    """This job has lost it for good, so it can only come back in one that does not leave it out."""
    scene = training()
    scene.view = replace(scene.view, job=JOB)
    scene.settle()
    scene.lose("n1")
    scene.settle()
    scene.load()
    scene.step(41)
    scene.settle()
    assert scene.view.nodes is not UNKNOWN
    scene.view = replace(scene.view, nodes={n: one for n, one in scene.view.nodes.items() if n != "n1"})
    if lifted:
        reply = unbar(scene, "n1")
        assert reply.answer.text.endswith(". Not yet: n1 (not among this run's nodes)")
        scene.say(*reply.entries)
    ends_in(scene, 10)
    scene.settle()
    scene.finish_ranks()
    scene.settle()
    assert scene.of("next-job") == [actions.NextJob("12", JOB.start, () if lifted else ("n1",))]


def test_keeping_a_node_that_is_barred_already_is_refused_with_the_command_for_it(swapped: Scene) -> None:
    swapped.load()
    swapped.step(41)
    swapped.settle()
    swapped.lose("n2")
    swapped.settle()
    assert swapped.history.halted is not None
    request = Request(ID, "resume", "li", swapped.now, why="repaired", keep_nodes=("n1",))
    reply = judge(request, swapped.history, swapped.view, swapped.now)
    assert reply.answer.exit == 2
    assert reply.answer.text == "n1 is barred already. Lift that: relight unbar demo n1"


def test_a_drain_that_stays_is_said_and_is_lifted_once_it_may_be(swapped: Scene) -> None:
    swapped.say(Paused("li", ""))
    reply = unbar(swapped, "n1")
    assert reply.answer.text.endswith(". Our own drain in Slurm stays while the run is paused")
    swapped.say(*reply.entries)
    swapped.settle()
    assert swapped.of("unbar") == []
    swapped.say(Resumed("li", ""), ModeSet("observe"))
    swapped.settle()
    assert swapped.of("unbar") == []
    swapped.say(ModeSet("auto"))
    swapped.settle()
    assert swapped.of("unbar") == [actions.Unbar("n1", 1)]


def test_a_drain_that_stays_in_mode_observe_is_said(swapped: Scene) -> None:
    swapped.say(ModeSet("observe"))
    assert unbar(swapped, "n1").answer.text.endswith(". Our own drain in Slurm stays while the run is in mode observe")
