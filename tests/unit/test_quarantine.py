"""Whom a trouble bars; what bars nobody; and when a person is asked first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.facts import FaultClass, Finding, NodeState, NodeView
from policies.history import Attempt, Bar, Diagnosis, History, Incident, Times, Trouble
from policies.quarantine import Breaker, ToBar, for_good, no_suspect, on_probation, returning, to_bar
from policies.reasons import Reason
from policies.rules import Rules

RULES = Rules()
NOW = 100_000.0
SLOTS = ("n0", "n1", "n2", "n3")


def trouble(fault: FaultClass, *nodes: str, attempt: int = 3, at: float = NOW) -> Trouble:
    return Trouble(fault, Reason(fault.value), at, attempt, died=True, text="", nodes=nodes)


def incident(number: int, what: Trouble, diagnosis: Diagnosis | None = None) -> Incident:
    return Incident(number, what.attempt, what, Times(), frontier=0, frontier_samples=0, diagnosis=diagnosis)


def history(*incidents: Incident, bars: tuple[Bar, ...] = (), slots: tuple[str, ...] = SLOTS) -> History:
    attempts = tuple(Attempt(n, slots, None, 0, 0.0, None) for n in (1, 2, 3))
    return History(incidents=incidents, bars=bars, attempts=attempts)


def bar(node: str, at: float) -> Bar:
    return Bar(node, at, 1, Reason.NODE_LOST)


def finding(node: str | None) -> Finding:
    return Finding(attempt=3, kind="exit-signal", role="root", category="hang.unknown", text="", node=node)


@pytest.mark.parametrize("fault", [FaultClass.NODE_LOST, FaultClass.NODE_SILENT])
def test_a_node_that_is_gone_or_silent_is_barred(fault: FaultClass) -> None:
    verdict = to_bar(None, trouble(fault, "n1"), RULES, history(), NOW)
    assert isinstance(verdict, ToBar)
    assert verdict.nodes == ("n1",)


def test_the_diagnosis_outranks_what_was_seen_first() -> None:
    found = Diagnosis(suspects=("n2",), category="hardware.host", fault=FaultClass.NODE_LOST)
    assert to_bar(found, trouble(FaultClass.RANK_DIED, "n1"), RULES, history(), NOW).nodes == ("n2",)


def test_blindness_bars_nobody() -> None:
    """Three silent of four: too few eyes are left to say who is ill."""
    verdict = to_bar(None, trouble(FaultClass.NODE_SILENT, "n0", "n1", "n2"), RULES, history(), NOW)
    assert verdict == ToBar((), "too few nodes answer to tell a silent node from a blind eye")
    # two of four: as many answer as the profile wants (0.5)
    assert to_bar(None, trouble(FaultClass.NODE_SILENT, "n0", "n1"), RULES, history(), NOW).nodes == ("n0", "n1")


def test_without_any_attempt_a_silent_node_is_no_suspect() -> None:
    assert to_bar(None, trouble(FaultClass.NODE_SILENT, "n0"), RULES, History(), NOW).nodes == ()


@pytest.mark.parametrize("fault", [FaultClass.RANK_DIED, FaultClass.RANK_FAILED, FaultClass.LAUNCH_FAILED])
def test_a_rank_restarts_in_place_once(fault: FaultClass) -> None:
    now = trouble(fault, "n1")
    assert to_bar(None, now, RULES, history(incident(1, now)), NOW).nodes == ()
    earlier = incident(1, trouble(fault, "n1", attempt=2, at=NOW - 3600))
    assert to_bar(None, now, RULES, history(earlier, incident(2, now)), NOW).nodes == ("n1",)


@pytest.mark.parametrize(
    "earlier",
    [
        trouble(FaultClass.RANK_DIED, "n2", attempt=2, at=NOW - 60),
        trouble(FaultClass.RANK_DIED, "n1", attempt=2, at=NOW - RULES.budget.window_s),
        trouble(FaultClass.RANK_DIED, "n1", "n2", attempt=2, at=NOW - 60),
        trouble(FaultClass.NON_FINITE, "n1", attempt=2, at=NOW - 60),
    ],
    ids=["another node", "too long ago", "on two nodes", "another kind"],
)
def test_what_is_no_second_time(earlier: Trouble) -> None:
    assert to_bar(None, trouble(FaultClass.RANK_DIED, "n1"), RULES, history(incident(1, earlier)), NOW).nodes == ()


def test_evidence_names_the_node_before_the_ranks_do() -> None:
    found = Diagnosis(first=(finding("n2"), finding(None)))
    earlier = incident(1, trouble(FaultClass.RANK_DIED, "n0", attempt=2), found)
    assert to_bar(found, trouble(FaultClass.RANK_DIED, "n1"), RULES, history(earlier), NOW).nodes == ("n2",)


def test_an_error_on_many_nodes_points_at_none() -> None:
    found = Diagnosis(first=(finding("n1"), finding("n2")))
    earlier = incident(1, trouble(FaultClass.RANK_FAILED, "n1", attempt=2))
    verdict = to_bar(found, trouble(FaultClass.RANK_FAILED, "n1"), RULES, history(earlier), NOW)
    assert verdict == ToBar((), "no one node stands apart in this fault")


def test_broken_hardware_is_barred_the_first_time() -> None:
    found = Diagnosis(suspects=("n1",), category="hardware.gpu")
    assert to_bar(found, trouble(FaultClass.RANK_DIED, "n1"), RULES, history(), NOW).nodes == ("n1",)
    assert to_bar(found, trouble(FaultClass.STALL), RULES, history(), NOW).nodes == ("n1",)
    soft = replace(found, category="software.user")
    assert to_bar(soft, trouble(FaultClass.RANK_DIED, "n1"), RULES, history(), NOW).nodes == ()
    # a loss that is not finite is the data's or the code's until shown otherwise
    assert to_bar(found, trouble(FaultClass.NON_FINITE, "n1"), RULES, history(), NOW).nodes == ()


def test_the_odd_one_out_in_a_stall_is_barred() -> None:
    assert to_bar(None, trouble(FaultClass.STALL, "n1"), RULES, history(), NOW).nodes == ("n1",)
    assert to_bar(None, trouble(FaultClass.STALL, "n1", "n2"), RULES, history(), NOW).nodes == ()
    assert to_bar(None, trouble(FaultClass.STALL), RULES, history(), NOW).nodes == ()
    # of two nodes neither is in the majority
    assert to_bar(None, trouble(FaultClass.STALL, "n1"), RULES, history(slots=("n0", "n1")), NOW).nodes == ()


def test_a_stall_that_a_ranks_own_code_explains_bars_nobody() -> None:
    """It sits in its own sleep, or somebody has stopped its process: another machine would not help."""
    stall = trouble(FaultClass.STALL, "n001")
    explained = Diagnosis((finding("n001"),), category="software.user", inferred=True)
    assert to_bar(explained, stall, RULES, history(), NOW).nodes == ()
    assert to_bar(replace(explained, inferred=False), stall, RULES, history(), NOW).nodes == ("n001",)


@pytest.mark.parametrize("fault", [FaultClass.SAVE_STUCK, FaultClass.ACCEPTANCE, FaultClass.PROBATION])
def test_other_classes_point_at_no_node(fault: FaultClass) -> None:
    assert to_bar(None, trouble(fault, "n1"), RULES, history(), NOW) == ToBar((), f"{fault} points at no node")


def test_a_person_may_keep_a_node() -> None:
    verdict = to_bar(None, trouble(FaultClass.NODE_LOST, "n1", "n2"), RULES, history(), NOW, ("n1",))
    assert verdict.nodes == ("n2",)
    verdict = to_bar(None, trouble(FaultClass.NODE_LOST, "n1"), RULES, history(), NOW, ("n1",))
    assert verdict == ToBar((), "n1 kept in use by a person")


def test_the_breaker_asks_a_person() -> None:
    bars = (bar("n0", NOW - 3599), bar("n2", NOW - 10))
    verdict = to_bar(None, trouble(FaultClass.NODE_LOST, "n1"), RULES, history(bars=bars), NOW)
    assert isinstance(verdict, Breaker)
    assert (verdict.nodes, verdict.count, verdict.limit) == (("n1",), 3, 2)
    assert "3 nodes barred within an hour (limit 2)" in verdict.why


def test_bars_of_more_than_an_hour_ago_do_not_count() -> None:
    bars = (bar("n0", NOW - 3600), bar("n2", NOW - 10))
    assert isinstance(to_bar(None, trouble(FaultClass.NODE_LOST, "n1"), RULES, history(bars=bars), NOW), ToBar)


def test_the_breaker_grows_with_the_run() -> None:
    slots = tuple(f"n{i:03d}" for i in range(640))
    lost = trouble(FaultClass.NODE_LOST, *slots[:32])
    assert isinstance(to_bar(None, lost, RULES, history(slots=slots), NOW), ToBar)
    lost = trouble(FaultClass.NODE_LOST, *slots[:33])
    assert isinstance(to_bar(None, lost, RULES, history(slots=slots), NOW), Breaker)


def test_one_restart_without_a_suspect_then_a_person() -> None:
    lost = [incident(n, trouble(FaultClass.STALL, attempt=n)) for n in (1, 2, 3)]
    assert no_suspect((), RULES, NOW) is None
    assert no_suspect(lost[:1], RULES, NOW) is None
    told = no_suspect(lost[:2], RULES, NOW)
    assert told == "no suspect, the second time: stall points at nobody, and incident 1 did not either"
    assert (no_suspect(lost, RULES, NOW) or "").startswith("no suspect, 3 times: ")


@pytest.mark.parametrize(
    "before",
    [
        incident(1, trouble(FaultClass.STALL, "n1", attempt=2)),  # somebody was blamed
        incident(1, trouble(FaultClass.SAVE_STUCK, attempt=2)),
        incident(1, trouble(FaultClass.STALL, attempt=3)),
        incident(1, trouble(FaultClass.STALL, attempt=2, at=NOW - RULES.budget.window_s)),
        replace(incident(1, trouble(FaultClass.STALL, "n1", "n2", attempt=2)), barred=("n1", "n2")),
    ],
    ids=["blamed", "another class", "the same attempt", "too long ago", "barred"],
)
def test_what_is_no_second_time_without_a_suspect(before: Incident) -> None:
    assert no_suspect((before, incident(2, trouble(FaultClass.STALL))), RULES, NOW) is None


def test_where_somebody_is_blamed_nobody_is_missing() -> None:
    both = [incident(n, trouble(FaultClass.STALL, *blamed, attempt=n)) for n, blamed in ((1, ()), (2, ("n1",)))]
    assert no_suspect(both, RULES, NOW) is None
    many = incident(2, trouble(FaultClass.STALL, "n1", "n2"))  # two nodes are no one suspect
    assert no_suspect((both[0], many), RULES, NOW) is not None


def test_the_second_bar_within_thirty_days_is_for_good() -> None:
    quarantined = bar("n1", NOW - 30 * 86_400 + 1)
    again = history(incident(2, trouble(FaultClass.NODE_LOST, "n1")), bars=(quarantined,))
    assert for_good("n1", 2, again, RULES.quarantine)
    assert not for_good("n2", 2, again, RULES.quarantine)
    assert not for_good("n1", 1, again, RULES.quarantine)  # its own bar is no earlier one
    old = replace(again, bars=(bar("n1", NOW - 30 * 86_400),))
    assert not for_good("n1", 2, old, RULES.quarantine)


def test_a_node_comes_back_through_a_check_only() -> None:
    """Its time is over, the cluster shows it up, nobody has drained it, an agent answers there, and its checks found nothing."""
    up = NodeView("n1", NodeState.UP, 0.0, agent=True, checked_at=1.0)
    over = history(bars=(replace(bar("n1", 0.0), until=NOW),))
    assert returning(over, {"n1": up}, NOW) == ("n1",)
    for wrong in (
        replace(up, agent=False),
        replace(up, drained_by_other=True),
        replace(up, state=NodeState.SILENT),
        replace(up, state=NodeState.UNKNOWN),
        replace(up, checked_at=None),
        replace(up, unhealthy=("gpus: 7 of 8",)),
    ):
        assert returning(over, {"n1": wrong}, NOW) == ()
    assert returning(over, {}, NOW) == ()
    assert returning(over, {"n1": up}, NOW - 1) == ()


def test_a_bar_for_good_holds_whatever_else_has_run_out() -> None:
    up = {"n1": NodeView("n1", NodeState.UP, 0.0, agent=True)}
    ran_out = replace(bar("n1", 0.0), until=NOW)
    assert returning(history(bars=(ran_out, bar("n1", 5.0))), up, NOW) == ()
    assert returning(history(bars=(replace(ran_out, returned_at=5.0),)), up, NOW) == ()


def test_what_came_back_is_on_probation_for_seven_days() -> None:
    back = history(bars=(replace(bar("n1", 0.0), returned_at=NOW), bar("n2", 0.0)))
    assert on_probation(back, RULES.quarantine, NOW + 7 * 86_400 - 1) == {"n1"}
    assert on_probation(back, RULES.quarantine, NOW + 7 * 86_400) == frozenset()


def test_the_same_samples_are_no_second_time_of_the_node() -> None:
    """A bad sample kills whichever rank reads it, and may twice be on one node. The simulated world found it (seed 10484)."""
    bad = Diagnosis(first=(finding("n1"),), category="software.user", data=(400, 16))
    earlier = incident(1, trouble(FaultClass.RANK_DIED, "n1", attempt=2, at=NOW - 60), bad)
    now = trouble(FaultClass.RANK_DIED, "n1")
    assert to_bar(bad, now, RULES, history(earlier), NOW).nodes == ()
    assert to_bar(replace(bad, data=(416, 16)), now, RULES, history(earlier), NOW).nodes == ("n1",)
    assert to_bar(replace(bad, category="hang.unknown"), now, RULES, history(earlier), NOW).nodes == ("n1",)
    assert to_bar(None, now, RULES, history(earlier), NOW).nodes == ("n1",)
