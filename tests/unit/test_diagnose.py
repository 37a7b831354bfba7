"""The earliest error, not the loudest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import LAYOUT, Scene, end, finding, row
from builders import training as trains

from policies.diagnose import diagnose, earliest, keep_earliest
from policies.facts import UNKNOWN, Batch, FaultClass, Finding, NodeState, Phase
from policies.history import Diagnosis, Trouble
from policies.reasons import Reason
from supervisor.journal.entries import IncidentOpened


def training() -> Scene:
    """A run that trains; its last step was done at 1, before anything that these tests tell of."""
    scene = trains()
    assert scene.shown.last_step is not None
    scene.change(last_step=replace(scene.shown.last_step, at=1.0))
    return scene


def opened(scene: Scene, fault: FaultClass, *, ranks: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> None:
    trouble = Trouble(fault, Reason(fault.value), 900.0, 1, True, "what was seen", ranks, names)
    scene.say(IncidentOpened(1, 1, trouble, None, 900.0, 45, 360, None))


def found(scene: Scene, before: float = 9e9) -> Diagnosis:
    return diagnose(scene.history, scene.history.incidents[-1], scene.view, LAYOUT, before)


def test_the_clocks_decide_what_they_can() -> None:
    first, second = finding("a", "root", 1, 10.0), finding("b", "root", 2, 11.0)
    assert earliest([second, first]) == (first,)


def test_what_the_clocks_cannot_order_stays_together() -> None:
    """A clock that may be 2 s off cannot say that 11 is after 10."""
    first, vague = finding("a", "root", 1, 10.0), finding("b", "root", None, 11.0, bound=2.0)
    late = finding("c", "root", 3, 13.5, bound=2.0)
    assert earliest([vague, late, first]) == (first, vague)


def test_only_roots_count_and_one_without_a_time_only_when_nothing_has_one() -> None:
    timeless, timed = finding("a", "root", 1, None), finding("b", "root", 2, 5.0)
    cascade = finding("c", "cascade", 3, 1.0)
    assert earliest([timeless, cascade, timed]) == (timed,)
    assert earliest([timeless, cascade, finding("d", "root", 4, None)]) == (timeless,)
    assert earliest([cascade]) == ()


def test_a_signal_first_and_its_cascade() -> None:
    scene = training()
    scene.change(exits=(end(0, "n0", at=12, code=1), end(1, "n1", at=10, signal=9), end(2, "n2", at=11, signal=15)))
    opened(scene, FaultClass.RANK_DIED)
    seen = found(scene)
    assert [(f.rank, f.kind) for f in seen.first] == [(1, "exit-signal")]
    assert (seen.fault, seen.reason, seen.cascade) == (
        FaultClass.RANK_DIED,
        Reason.RANK_DIED,
        "2 other ranks failed after it",
    )
    assert seen.suspects == ()
    assert seen.data == (360, 8)


def test_what_ended_after_we_began_to_stop_is_our_own_doing() -> None:
    scene = training()
    scene.change(exits=(end(1, "n1", at=10, code=3), end(0, "n0", at=20, signal=9)))
    opened(scene, FaultClass.RANK_FAILED)
    seen = found(scene, before=15.0)
    assert (seen.cascade, seen.fault) == ("", FaultClass.RANK_FAILED)
    assert found(scene).cascade == "1 other rank failed after it"


def test_a_rank_whose_log_says_that_a_peer_went_away_is_a_victim() -> None:
    """Its exit is the first to be seen; the peer's own words come later, and name the cause."""
    scene = training()
    scene.change(exits=(end(0, "n0", at=10, code=1), end(1, "n1", at=12, code=1)))
    said = (
        finding("connection reset", "cascade", 0, 9.0),
        finding("out of memory", "root", 1, 11.0),
        finding("old", "root", 2, 1.0, attempt=9),
    )
    scene.view = replace(scene.view, findings=said)
    opened(scene, FaultClass.RANK_FAILED)
    assert [(f.rank, f.kind) for f in found(scene).first] == [(1, "out of memory")]
    both = (*said, finding("assertion", "root", 0, 8.0))
    scene.view = replace(scene.view, findings=both)
    assert found(scene).first[0].kind == "assertion"


def test_when_all_call_themselves_victims_the_first_end_is_named() -> None:
    scene = training()
    scene.change(exits=(end(0, "n0", at=10, signal=15), end(1, "n1", at=12, signal=15)))
    opened(scene, FaultClass.RANK_DIED)
    assert [f.rank for f in found(scene).first] == [0]


def test_two_at_once_is_said_with_less_confidence() -> None:
    scene = training()
    scene.change(exits=(end(0, "n0", at=10, code=1), end(1, "n1", at=10, code=1)))
    opened(scene, FaultClass.RANK_FAILED)
    one_of_two = found(scene)
    assert len(one_of_two.first) == 2
    scene.change(exits=scene.shown.exits[:1])
    assert found(scene).confidence > one_of_two.confidence


def test_nothing_is_known_of_an_attempt_that_is_not_shown() -> None:
    scene = training()
    opened(scene, FaultClass.RANK_DIED)
    scene.view = replace(scene.view, attempt=None)
    assert found(scene) == Diagnosis()


def test_a_lost_node_explains_what_its_peers_suffer() -> None:
    scene = training()
    scene.change(exits=(end(0, "n0", at=1, signal=6),))
    scene.lose("n1")
    opened(scene, FaultClass.RANK_DIED)
    seen = found(scene)
    assert (seen.suspects, seen.fault, seen.reason) == (("n1",), FaultClass.NODE_LOST, Reason.NODE_LOST)
    assert seen.cascade == "1 other rank failed after it"


def test_a_node_that_the_cluster_does_not_list_is_not_called_lost() -> None:
    scene = training()
    assert isinstance(scene.view.nodes, dict)
    scene.view = replace(scene.view, nodes={k: v for k, v in scene.view.nodes.items() if k != "n1"})
    opened(scene, FaultClass.NON_FINITE)
    assert found(scene).fault is None
    scene.view = replace(scene.view, nodes=UNKNOWN)
    assert found(scene).fault is None


@pytest.mark.parametrize(
    ("fault", "category"),
    [(FaultClass.NON_FINITE, "numeric"), (FaultClass.NODE_SILENT, "hardware.host"), (FaultClass.STALL, "hang.unknown")],
)
def test_what_was_seen_is_the_cause_when_nothing_ended(fault: FaultClass, category: str) -> None:
    scene = training()
    opened(scene, fault, ranks=(1,), names=("n1",))
    seen = found(scene)
    assert seen.category == category
    first: Finding = seen.first[0]
    assert (first.rank, first.node, first.text, first.wall) == (1, "n1", "what was seen", 900.0)
    assert seen.suspects == ("n1",)


def test_several_are_nobody_in_particular() -> None:
    scene = training()
    opened(scene, FaultClass.STALL, ranks=(1, 2), names=("n1", "n2"))
    first = found(scene).first[0]
    assert (first.rank, first.node) == (None, None)


def test_no_window_of_data_outside_the_steps() -> None:
    scene = training()
    opened(scene, FaultClass.STALL)
    scene.change(phase=Phase.SAVE)
    assert found(scene).data is None
    assert scene.shown.last_step is not None
    scene.change(phase=Phase.STEP, last_step=replace(scene.shown.last_step, batch=None))
    assert found(scene).data is None


@pytest.mark.parametrize(("silent", "blamed"), [(1, ("n1",)), (3, ())])
def test_a_stall_is_explained_by_a_silent_node_while_most_answer(silent: int, blamed: tuple[str, ...]) -> None:
    scene = training()
    for name in ("n1", "n2", "n3")[:silent]:
        scene.node(name, state=NodeState.SILENT)
    opened(scene, FaultClass.STALL)
    seen = found(scene)
    assert seen.suspects == blamed
    assert seen.fault is (FaultClass.NODE_SILENT if blamed else None)
    scene.view = replace(scene.view, nodes=UNKNOWN)
    assert found(scene).suspects == ()


def test_deaths_that_nothing_explains_are_those_of_peers_of_a_silent_node() -> None:
    """Peers of a lost node end with a code and can't say why; Slurm calls it lost half a minute later."""
    scene = training()
    scene.node("n1", state=NodeState.SILENT)
    scene.change(exits=(end(0, "n0", at=12, code=1), end(2, "n2", at=12.1, code=1)))
    opened(scene, FaultClass.RANK_FAILED)
    seen = found(scene)
    assert (seen.suspects, seen.fault, seen.reason) == (("n1",), FaultClass.NODE_SILENT, Reason.NODE_SILENT)
    assert 0.5 < seen.confidence < 0.9  # the cluster itself has not said it
    assert seen.cascade == "2 other ranks failed after it"


def test_a_silent_node_explains_no_line_and_no_end_of_its_own() -> None:
    scene = training()
    scene.node("n1", state=NodeState.SILENT)
    scene.change(exits=(end(0, "n0", at=12, code=1), end(1, "n1", at=12.1, code=1)))
    opened(scene, FaultClass.RANK_FAILED)
    assert found(scene).fault is not FaultClass.NODE_SILENT  # what ended there was heard
    scene.change(exits=(end(0, "n0", at=12, code=1),))
    scene.view = replace(scene.view, findings=(finding("python-exception", "root", 0, 11.9),))
    assert found(scene).fault is not FaultClass.NODE_SILENT  # a line says why


def test_what_was_being_read_is_known_in_steps_only() -> None:
    """After step 45 step 46 is being done; a loss that is not finite is that of the step that has it."""
    scene = training()
    opened(scene, FaultClass.RANK_FAILED)
    scene.die(1, signal=None, code=1)
    assert (found(scene).step, found(scene).data) == (46, (360, 8))
    scene.change(phase=Phase.SAVE)
    assert (found(scene).step, found(scene).data) == (None, None)
    scene.change(phase=Phase.STEP, last_step=replace(scene.shown.last_step, batch=None))  # type: ignore[type-var]
    assert found(scene).data is None


def test_before_the_first_step_the_ranks_have_told_what_they_read() -> None:
    scene = training()
    opened(scene, FaultClass.RANK_FAILED)
    scene.die(1, signal=None, code=1)
    scene.change(last_step=None)
    assert (found(scene).step, found(scene).data) == (1, (0, 8))
    halves = {0: Batch(320, 4, "a"), 1: Batch(324, 4, "b"), 2: Batch(320, 4, "a")}
    scene.change(loaded={r: replace(one, next_batch=halves[r]) for r, one in scene.shown.loaded.items()})
    assert found(scene).data == (320, 8)
    scene.change(loaded={r: replace(one, next_batch=None) for r, one in scene.shown.loaded.items()})
    assert found(scene).data is None


def test_a_loss_that_is_not_finite_is_that_of_its_own_step() -> None:
    """Step 47 is the last, 45 had it. The rank that told of it in its log is named; nobody is a suspect."""
    scene = training()
    opened(scene, FaultClass.NON_FINITE)
    scene.change(non_finite=row(45))
    scene.step(47)
    assert (found(scene).step, found(scene).data) == (45, (352, 8))
    scene.change(phase=Phase.EVALUATION)  # a step that ends before an evaluation is still that step
    assert (found(scene).step, found(scene).data) == (45, (352, 8))
    assert found(scene).first[0].node is None
    told = replace(finding("loss-nan", "root", 1, 890.0), category="numeric", node="n1")
    other = replace(told, attempt=2, node="n2")
    late = replace(told, wall=9e9, node="n0")
    scene.view = replace(scene.view, findings=(other, late, told, finding("x", "root", 2, 880.0)))
    diagnosis = found(scene, 8e9)
    assert (diagnosis.first, diagnosis.suspects, diagnosis.category) == ((told,), (), "numeric")


def test_a_second_look_keeps_what_a_new_controller_does_not_know() -> None:
    """The simulated world found it: the data window of the fault was lost when a controller died in the incident."""
    seen = finding("exit-signal", "root", 1, 10.0)
    sealed = Diagnosis((seen,), (), "hang.unknown", data=(360, 8), step=46, fault=FaultClass.RANK_DIED)
    again = Diagnosis((replace(seen, wall=10.001),), (), "hang.unknown", cascade="2 other ranks failed after it")
    assert keep_earliest(sealed, again) == replace(sealed, cascade=again.cascade)
    assert keep_earliest(sealed, Diagnosis()) == sealed
    assert keep_earliest(None, again) == again
    later = replace(again, first=(finding("exit-code", "root", 2, 11.0),))
    assert keep_earliest(sealed, later).first == (seen,)


def test_earlier_evidence_and_a_lost_node_take_its_place() -> None:
    sealed = Diagnosis((finding("exit-signal", "root", 1, 10.0),), (), "hang.unknown", data=(360, 8), step=46)
    earlier = Diagnosis((finding("oom", "root", 2, 9.0),), (), "oom.gpu")
    lost = Diagnosis((finding("node-lost", "root", None, 12.0),), ("n1",), "hardware.host", fault=FaultClass.NODE_LOST)
    for again in (earlier, lost):
        assert keep_earliest(sealed, again) == replace(again, data=(360, 8), step=46)


def test_the_words_before_an_end_say_of_what_kind_it_is() -> None:
    """A rank raises and then dies of it, within what the clocks can tell. The simulated world found it (swarm seed 10484)."""
    scene = training()
    scene.change(exits=(end(1, "n1", at=10, signal=11),))
    opened(scene, FaultClass.RANK_DIED)
    words = replace(finding("exception", "root", 1, 10.0), category="software.user", offset_bound=0.1)
    scene.view = replace(scene.view, findings=(words,))
    seen = found(scene)
    assert [f.kind for f in seen.first] == ["exception"]
    assert (seen.fault, seen.category) == (FaultClass.RANK_DIED, "software.user")
