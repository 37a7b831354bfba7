"""What the agents tell of an attempt makes one case, and the rules for folders of logs decide it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import end, finding, row

from policies import livecase
from policies.diagnose import diagnose, look_again
from policies.facts import AttemptView, CaptureView, FaultClass, Finding, RankExit, RankStack, View
from policies.history import Attempt, Diagnosis, History, Incident, Times, Trouble
from policies.layout import Layout
from policies.reasons import Reason

LAYOUT = Layout(1, 1, 8, 1)
SLOTS = tuple(f"n{i}" for i in range(8))
ATTEMPT = Attempt(1, SLOTS, None, 0, 0.0, None)


def timeout(rank: int, at: float) -> Finding:
    return replace(finding("collective-timeout", "cascade", rank, at), node=f"n{rank}", seq=4182)


def look(
    fault: FaultClass,
    findings: tuple[Finding, ...] = (),
    exits: tuple[RankExit, ...] = (),
    stacks: tuple[RankStack, ...] = (),
    sealed: Diagnosis | None = None,
    **shown: object,
) -> Diagnosis:
    trouble = Trouble(fault, Reason(fault.value), 600.0, 1, fault is not FaultClass.STALL, "what was seen")
    incident = Incident(1, 1, trouble, Times(confirmed=600.0), 45, 0, diagnosis=sealed)
    seen = AttemptView(1, True, frozenset(range(8)), exits, **shown)  # type: ignore[arg-type]
    view = View(attempt=seen, findings=findings, capture=CaptureView(1, True, 8, 0, stacks))
    history = History(attempts=(ATTEMPT,), incidents=(incident,))
    if sealed is not None:
        return look_again(sealed, history, incident, view, LAYOUT, 9e9)
    return diagnose(history, incident, view, LAYOUT, 9e9)


def test_the_one_that_never_said_that_it_waited_is_named() -> None:
    waited = [rank for rank in range(8) if rank != 2]
    found = look(
        FaultClass.RANK_DIED,
        tuple(timeout(rank, 590.0) for rank in waited),
        tuple(end(rank, f"n{rank}", at=600.0 + rank, signal=6) for rank in waited),
    )
    assert [(f.rank, f.node) for f in found.first] == [(2, "n2")]
    assert found.inferred
    assert (found.suspects, found.fault) == ((), None)  # how it counts is what was seen: ranks that died


def test_a_victim_that_was_taken_for_the_first_is_replaced_when_its_words_are_in() -> None:
    exits = tuple(end(rank, f"n{rank}", at=600.0 + rank, signal=6) for rank in range(8) if rank != 2)
    early = look(FaultClass.RANK_DIED, (), exits[:1])
    assert [f.rank for f in early.first] == [0]
    words = tuple(timeout(rank, 590.0) for rank in range(8) if rank != 2)
    assert [f.rank for f in look(FaultClass.RANK_DIED, words, exits, sealed=early).first] == [2]


def test_the_kernels_word_takes_the_place_of_a_bare_signal() -> None:
    killed = (end(3, "n3", at=600.0, signal=9),)
    early = look(FaultClass.RANK_DIED, (), killed)
    oom = replace(
        finding("oom-kill", "root", 3, 600.4),
        node="n3",
        category="oom.host",
        grade=4,
        offset_bound=0.5,
        source="kernel",
    )
    again = look(FaultClass.RANK_DIED, (oom,), killed, sealed=early)
    assert (again.category, again.fault) == ("oom.host", FaultClass.RANK_DIED)
    assert [f.rank for f in again.first] == [3]


def test_a_gpu_that_fell_off_the_bus_makes_its_node_a_suspect_and_counts_against_the_infrastructure() -> None:
    xid = replace(
        finding("xid-gpu", "root", None, 599.0),
        node="n5",
        category="hardware.gpu",
        grade=4,
        restart=False,
        source="kernel",
    )
    cuda = replace(finding("cuda-device", "root", 5, 599.5), node="n5", category="hardware.gpu", grade=2)
    found = look(FaultClass.RANK_FAILED, (xid, cuda), (end(5, "n5", at=600.0, code=1),))
    assert (found.suspects, found.category, found.fault) == (("n5",), "hardware.gpu", FaultClass.RANK_DIED)
    assert found.restart_ok is False


def test_what_was_survived_is_not_the_cause() -> None:
    old = replace(finding("exception", "root", 6, 100.0), node="n6")
    last = row(45, at=590.0)
    found = look(FaultClass.RANK_DIED, (old,), (end(1, "n1", at=600.0, signal=9),), last_step=last)
    assert [f.rank for f in found.first] == [1]


@pytest.mark.parametrize(("stopped", "category"), [(True, "hang.unknown"), (False, "software.user")])
def test_in_a_stall_the_stack_that_differs_is_named(stopped: bool, category: str) -> None:
    stacks = tuple(RankStack(r, f"n{r}", "communication", "all_reduce (c10d.py:1)") for r in range(8) if r != 4)
    odd = RankStack(4, "n4", "other", "sleep (train.py:9) < main (train.py:20)", stopped)
    found = look(FaultClass.STALL, stacks=(*stacks, odd))
    assert [(f.rank, f.node) for f in found.first] == [(4, "n4")]
    assert (found.category, found.inferred, found.suspects) == (category, True, ())


def test_two_stacks_that_differ_of_eight_name_nobody_falsely() -> None:
    """A pipeline waits in many places; three of eight that wait elsewhere single out nobody."""
    stacks = tuple(RankStack(r, f"n{r}", "communication" if r > 2 else "other", f"f{r} (a.py:{r})") for r in range(8))
    assert look(FaultClass.STALL, stacks=stacks).first[0].text == "what was seen"


def test_a_peer_that_is_no_node_of_ours_is_not_known() -> None:
    one = replace(finding("peer-gone", "cascade", 0, 1.0), peer="10.1.2.3")
    assert livecase.clue(one, SLOTS, None).peer is None
    assert livecase.clue(replace(one, peer="n7"), SLOTS, None).peer == "n7"


def test_what_ends_after_a_stall_is_not_its_cause() -> None:
    """All ranks are killed by our own stop, which was asked for twice. The simulated world found it (swarm seed 10795)."""
    exits = tuple(end(rank, f"n{rank}", at=700.0, signal=9) for rank in range(8))
    assert [f.text for f in look(FaultClass.STALL, exits=exits).first] == ["what was seen"]
