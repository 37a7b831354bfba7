"""What counts as trouble, and what is only not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AUTO, LAYOUT, T0, Scene, end, node, nodes, row, training

from policies.detect import LISTEN_S, detect, how, stall_at, stall_limit
from policies.facts import AttemptView, FaultClass, NodeState, Phase, RankExit, SaveView
from policies.history import Trouble


def seen(scene: Scene, after: float = 0.0) -> Trouble | None:
    return detect(scene.history, scene.view, LAYOUT, AUTO, scene.now + after)


@pytest.fixture
def scene() -> Scene:
    return training()


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (end(1, "n1", signal=9), "ended by SIGKILL"),
        (end(1, "n1", signal=40), "ended by signal 40"),
        (end(1, "n1", code=7), "ended with code 7"),
        (RankExit(1, "n1", 1, T0, 94, refused="fenced"), "was refused: fenced"),
    ],
)
def test_an_end_in_words(one: RankExit, words: str) -> None:
    assert how(one) == words


@pytest.mark.parametrize(
    ("phase", "limit"),
    [
        (Phase.START_UP, 300),
        (Phase.LOAD, 480),
        (Phase.STEP, 10),
        (Phase.SAVE, 480),
        (Phase.EVALUATION, 480),
        (Phase.SHUTDOWN, 120),
    ],
)
def test_each_phase_has_its_own_limit(phase: Phase, limit: float, scene: Scene) -> None:
    scene.change(phase=phase)
    assert stall_limit(scene.shown, AUTO) == limit
    begun = scene.shown.last_advance
    assert begun is not None
    scene.now = begun
    assert seen(scene, limit + 0.9) is None
    found = seen(scene, limit + 1.1)
    assert found is not None
    assert (found.fault, found.died) == (FaultClass.STALL, False)
    assert found.at == begun + limit
    assert ("after step 45" if phase is Phase.STEP else f"in {phase.value}") in found.text


def test_the_first_step_of_an_attempt_may_take_as_long_as_a_start_up(scene: Scene) -> None:
    """The simulated world found it: with steps of 35 s, the first one counted as a stall after 10 s."""
    scene.change(phase=Phase.STEP, first_step=None, last_step=None, frontier=0, slowest_step_s=0.0)
    assert stall_limit(scene.shown, AUTO) == 300


def test_slow_steps_raise_the_limit(scene: Scene) -> None:
    scene.change(slowest_step_s=30.0)
    assert stall_limit(scene.shown, AUTO) == 240


def test_a_launch_without_an_advance_is_measured_from_its_intent() -> None:
    scene = Scene()
    scene.settle()
    attempt = scene.history.attempt
    assert attempt is not None
    assert stall_at(scene.history, scene.view, AUTO) == attempt.intended_at + AUTO.stall.load_s + AUTO.stall.confirm_s


def test_a_stall_names_the_nodes_of_the_ranks_that_are_behind(scene: Scene) -> None:
    scene.change(behind=(1, 2))
    found = seen(scene, 60)
    assert found is not None
    assert (found.ranks, found.nodes) == ((1, 2), ("n1", "n2"))


@pytest.mark.parametrize(
    ("ends", "fault", "rank"),
    [
        ([end(1, "n1", at=5, signal=9), end(0, "n0", at=4, code=1)], FaultClass.RANK_FAILED, 0),
        ([end(1, "n1", at=4, signal=9), end(0, "n0", at=5, code=1)], FaultClass.RANK_DIED, 1),
        ([end(1, "n1", at=4, code=94)], FaultClass.LAUNCH_FAILED, 1),
        ([RankExit(2, "n2", 1, 4.0, 1, refused="other node")], FaultClass.LAUNCH_FAILED, 2),
    ],
)
def test_the_first_bad_end_is_named(ends: list[RankExit], fault: FaultClass, rank: int, scene: Scene) -> None:
    scene.change(exits=(end(2, "n2", at=1, code=0), *ends))
    found = seen(scene)
    assert found is not None
    assert (found.fault, found.ranks, found.died) == (fault, (rank,), True)


def test_clean_ends_are_no_trouble(scene: Scene) -> None:
    scene.finish_ranks()
    assert seen(scene) is None


def test_a_lost_node_comes_before_the_deaths_that_it_explains(scene: Scene) -> None:
    scene.die(0, signal=6)
    scene.lose("n1", "n2")
    found = seen(scene)
    assert found is not None
    assert (found.fault, found.nodes, found.text) == (FaultClass.NODE_LOST, ("n1", "n2"), "n1, n2 are gone")


def test_a_node_that_the_cluster_does_not_list_is_not_taken_for_lost(scene: Scene) -> None:
    assert isinstance(scene.view.nodes, dict)
    scene.view = replace(scene.view, nodes={k: v for k, v in scene.view.nodes.items() if k != "n1"})
    assert seen(scene) is None


def test_a_lost_spare_is_no_trouble(scene: Scene) -> None:
    scene.lose("n3")
    assert seen(scene) is None


def test_a_lost_node_is_seen_though_the_attempt_is_not(scene: Scene) -> None:
    scene.lose("n1")
    scene.view = replace(scene.view, attempt=None)
    found = seen(scene)
    assert found is not None
    assert found.text == "n1 is gone"


@pytest.mark.parametrize(("silent", "suspects"), [(("n1",), ("n1",)), (("n1", "n2"), ("n1", "n2")), (("n3",), None)])
def test_silent_nodes_that_hold_slots_are_suspects_while_others_answer(
    silent: tuple[str, ...], suspects: tuple[str, ...] | None, scene: Scene
) -> None:
    for name in silent:
        scene.node(name, state=NodeState.SILENT)
    assert seen(scene, AUTO.node.silent_s - 0.1) is None
    found = seen(scene, AUTO.node.silent_s)
    assert (found.nodes if found else None) == suspects
    if found:
        assert found.fault is FaultClass.NODE_SILENT
        assert ("do not answer" in found.text) == (len(silent) == 2)


def test_most_nodes_silent_is_blindness_and_hides_the_stall_but_not_a_death(scene: Scene) -> None:
    for name in ("n0", "n1", "n2"):
        scene.node(name, state=NodeState.SILENT)
    assert seen(scene, 600) is None
    scene.die(1)
    found = seen(scene, 600)
    assert found is not None
    assert found.fault is FaultClass.RANK_DIED


def test_nodes_that_are_down_do_not_count_as_eyes() -> None:
    """Of five, three have been down for long; of the two that are left, one is silent: half answer."""
    from policies.detect import silent_nodes

    seen_nodes = {**nodes(2), **{f"n{i}": node(f"n{i}", NodeState.DOWN) for i in (2, 3, 4)}}
    seen_nodes["n1"] = node("n1", NodeState.SILENT, since=0.0)
    assert silent_nodes(("n0", "n1"), seen_nodes, AUTO, 100.0) == ("n1",)


def test_a_loss_that_is_not_finite(scene: Scene) -> None:
    scene.change(non_finite=row(44, loss=float("nan")))
    found = seen(scene)
    assert found is not None
    assert (found.fault, found.text) == (FaultClass.NON_FINITE, "the loss of step 44 is not finite")


@pytest.mark.parametrize(
    ("state", "stuck"), [("begin", True), ("blocked", True), ("written", False), ("failed", False)]
)
def test_a_save_that_never_ends(state: str, stuck: bool, scene: Scene) -> None:
    scene.wait(AUTO.stall.save_written_s)
    scene.step(46)
    young, old = SaveView(46, 1, scene.now, "begin"), SaveView(40, 1, scene.now - AUTO.stall.save_written_s, state)  # type: ignore[arg-type]
    scene.change(saves=(young, old))
    found = seen(scene)
    assert (found is not None) == stuck
    if found:
        assert found.fault is FaultClass.SAVE_STUCK
        assert "step 40" in found.text


def test_ranks_that_do_not_start() -> None:
    scene = Scene()
    scene.settle()
    scene.change(started=frozenset({0}))
    assert seen(scene, AUTO.node.launch_s - 1) is None
    found = seen(scene, AUTO.node.launch_s + 1)
    assert found is not None
    assert (found.fault, found.died) == (FaultClass.LAUNCH_FAILED, False)
    assert "2 of 3 ranks" in found.text
    scene.change(limited=True)  # nothing but log lines is known: a start can't be seen
    assert seen(scene, AUTO.node.launch_s + 1) is None


def test_no_stall_can_be_foretold_without_a_view_of_the_attempt(scene: Scene) -> None:
    for view in (replace(scene.view, attempt=None), replace(scene.view, attempt=AttemptView(9, True))):
        assert stall_at(scene.history, view, AUTO) is None
    assert stall_at(Scene().history, scene.view, AUTO) is None


def test_a_new_controller_misses_nobody_before_it_has_heard_the_agents(scene: Scene) -> None:
    """The simulated world found it: a controller that came back took a run of hours for one that had never launched."""
    began = scene.now + 10_000
    history = replace(scene.history, epoch_began_at=began)
    scene.view = replace(scene.view, attempt=replace(scene.shown, started=frozenset()))
    assert detect(history, scene.view, LAYOUT, AUTO, began + LISTEN_S - 1) is None
    assert stall_at(history, scene.view, AUTO) == began + LISTEN_S


def test_an_attempt_that_has_made_steps_has_launched(scene: Scene) -> None:
    """Also when the agent that could say so is still being started."""
    scene.change(started=frozenset({0}), last_advance=scene.now + 10_000)
    assert seen(scene, 10_001) is None


def test_an_attempt_of_which_nothing_is_left_is_dead_and_not_slow(scene: Scene) -> None:
    """Its job is over, or the run directory came back from the archive alone: nobody waits for a stall limit of half an hour."""
    began = scene.now + 10_000
    history = replace(scene.history, epoch_began_at=began)
    gone = replace(scene.shown, running=False, started=frozenset(), exits=(), loaded={})
    view = replace(scene.view, attempt=gone, steps_running=frozenset(), cluster_as_of=began + 1)
    found = detect(history, view, LAYOUT, AUTO, began + LISTEN_S)
    assert found is not None
    assert (found.fault, found.died, found.nodes) == (FaultClass.RANK_DIED, True, ())
    assert "nothing of attempt 1 is left" in found.text

    def called_dead(**changed: object) -> bool:
        trouble = detect(history, replace(view, **changed), LAYOUT, AUTO, began + LISTEN_S)
        return trouble is not None and trouble.fault is FaultClass.RANK_DIED

    assert called_dead()
    assert not called_dead(steps_running=frozenset({1}))  # the cluster shows it
    assert not called_dead(attempt=replace(gone, started=frozenset({0})))  # an agent has heard of a rank
    assert not called_dead(attempt=replace(gone, running=True))
    assert not called_dead(cluster_as_of=began - 1)  # an old look says nothing about now
    assert detect(history, view, LAYOUT, AUTO, began + LISTEN_S - 1) is None  # the agents are heard first


def test_a_launch_whose_step_is_over_and_whose_ranks_never_began_has_failed() -> None:
    """As when Slurm refuses the step: nobody waits two minutes for ranks that can't come."""
    scene = Scene()
    scene.settle()
    scene.wait(10)
    assert seen(scene) is None  # it runs
    scene.view = replace(scene.view, steps_running=frozenset())
    scene.change(started=frozenset(), running=False)
    found = seen(scene)
    assert found is not None
    assert (found.fault, found.died) == (FaultClass.LAUNCH_FAILED, True)
    early = replace(scene.view, cluster_as_of=T0 + 1)
    assert detect(scene.history, early, LAYOUT, AUTO, scene.now) is None
    unseen = replace(scene.view, launched=frozenset())
    assert detect(scene.history, unseen, LAYOUT, AUTO, scene.now) is None
    for told in ({"started": frozenset({1})}, {"exits": (end(0, "n0", code=0),)}):
        heard = replace(scene.view, attempt=replace(scene.shown, **told))
        assert detect(scene.history, heard, LAYOUT, AUTO, scene.now) is None
