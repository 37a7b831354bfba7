"""Each action is judged in each mode: the table of the design, line by line."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from builders import APPROVE, AUTO, save_id

from policies.decisions import Contain, Continue, Decision, Finish, Halt, PlannedStop, Recover, Restores
from policies.facts import Counters, FaultClass, Rejected
from policies.history import Attempt, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import Rules
from supervisor import actions
from supervisor.actions import Action
from supervisor.gate import Held, Permitted, digest, gate
from supervisor.plan import NOTHING_DONE

PLAN = Recover(
    Reason.NODE_LOST, 1, FaultClass.NODE_LOST, True, 1, 2, ("n0", "n3", "n2"), ("n1",), save_id(40), 40, "m40"
)
FIRST = replace(PLAN, incident=None, fault=None)
CONTAIN = Contain(Reason.RANK_DIED, 1, 1, died=True)
HALT = Halt(Reason.NO_SPARE, "", "", 1, 1)
LAUNCH = actions.Launch(2, 1, PLAN.slots, PLAN.checkpoint, NOTHING_DONE, 1)
WATCH: list[Action] = [
    actions.StartAgent("n1"),
    actions.Check("n1", 1),
    actions.Capture(1, 1, stacks=True),
    actions.Begin(("a",)),
    actions.Release(),
]
STOPS: list[Action] = [actions.Fence(1), actions.Stop(1)]
CHANGES: list[Action] = [
    actions.Bar(("n1",), 1, None),
    actions.Restore("a"),
    actions.MakeView(2, save_id(40)),
    LAUNCH,
    *STOPS,
]


def said(action: Action, decision: Decision, mode: str, *, rules: Rules = AUTO, **changes: object) -> str:
    """Yes, asks or no."""
    known = History(mode=mode, **changes)  # type: ignore[arg-type]
    permission = gate(action, decision, known, rules)
    return "yes" if isinstance(permission, Permitted) else "asks" if permission.asks else "no"


@pytest.mark.parametrize("mode", ["observe", "approve", "auto", "paused"])
def test_the_table(mode: str) -> None:
    paused = mode == "paused"
    kind = "auto" if paused else mode

    def row(some: list[Action], decision: Decision) -> set[str]:
        return {said(a, decision, kind, paused=paused) for a in some}

    assert row(WATCH, CONTAIN) == {"yes"}
    assert row([actions.Seal("a"), actions.Archive("a"), actions.Scrub("a", None)], CONTAIN) == {
        "no" if mode == "observe" else "yes"
    }
    assert row([actions.Abandon(("a",)), actions.Retain("a", 3, ()), actions.Unbar("n1", 1)], CONTAIN) == {
        "yes" if mode in {"approve", "auto"} else "no"
    }
    assert row(STOPS, CONTAIN) == {"yes" if mode in {"approve", "auto"} else "no"}
    assert row(CHANGES, PLAN) == {{"observe": "no", "approve": "asks", "auto": "yes", "paused": "no"}[mode]}
    assert row([actions.MakeView(1, None), LAUNCH], FIRST) == {"no" if paused else "yes"}
    assert row([actions.AskStop(1)], PlannedStop(Reason.PLANNED_STOP, 1)) == {"no" if paused else "yes"}


def test_an_approval_counts_for_its_digest_only() -> None:
    mine = digest(PLAN)
    assert mine is not None
    assert said(LAUNCH, PLAN, "approve", approvals=frozenset({mine})) == "yes"
    assert said(LAUNCH, PLAN, "approve", approvals=frozenset({"0" * 16})) == "asks"
    assert said(LAUNCH, replace(PLAN, slots=("n0", "n4", "n2")), "approve", approvals=frozenset({mine})) == "asks"


def test_automation_asks_where_it_is_not_cleared() -> None:
    assert said(LAUNCH, PLAN, "auto", rules=Rules(mode="auto")) == "asks"
    assert said(LAUNCH, replace(PLAN, asks=True, text="many at once"), "auto") == "asks"
    attempt = Attempt(1, PLAN.slots, None, 0, 0.0, None, limited=True)
    assert said(LAUNCH, PLAN, "auto", attempts=(attempt,)) == "asks"
    assert said(LAUNCH, PLAN, "auto", attempts=(replace(attempt, limited=False),)) == "yes"
    assert said(LAUNCH, replace(PLAN, fault=None), "auto", rules=Rules(mode="auto")) == "yes"


def test_nothing_happens_that_was_not_decided() -> None:
    for action in CHANGES:
        assert said(action, Continue(Reason.RUNNING), "auto") == "no"


def test_a_launch_that_was_intended_may_be_asked_for_again_unless_paused() -> None:
    from policies.history import Intent

    known = {"launch:2": Intent("launch:2", 0.0, 1, 1, LAUNCH)}
    for mode in ("observe", "approve", "auto"):
        assert said(LAUNCH, Continue(Reason.RUNNING), mode, intents=known) == "yes"
    assert said(LAUNCH, Continue(Reason.RUNNING), "auto", intents=known, paused=True) == "no"


@pytest.mark.parametrize("died", [True, False])
def test_a_halt_stops_what_has_died_and_leaves_what_may_be_slow(died: bool) -> None:
    trouble = Trouble(FaultClass.STALL, Reason.STALL, 0.0, 1, died, "")
    known = (Incident(1, 1, trouble, Times(), 0, 0),)
    assert said(STOPS[0], HALT, "approve", rules=APPROVE, incidents=known) == ("yes" if died else "no")
    assert said(STOPS[0], HALT, "auto", incidents=known) == "yes"
    assert said(STOPS[0], HALT, "auto", rules=Rules(mode="auto"), incidents=known) == ("yes" if died else "no")
    assert said(STOPS[0], HALT, "approve", rules=APPROVE, incidents=known, asked_to_halt=True) == "yes"
    assert said(STOPS[0], HALT, "approve", rules=APPROVE) == "yes"
    assert said(STOPS[0], HALT, "observe") == "no"
    assert said(STOPS[0], HALT, "observe", asked_to_halt=True) == "yes"


def test_the_digest_is_over_the_effects_alone() -> None:
    """Costs, evidence and words may change beside a plan without asking again; what it does may not."""
    beside = {
        "reason": Reason.STALL,
        "fault": FaultClass.STALL,
        "died": False,
        "stops": None,
        "checkpoint_step": 39,
        "rejected": (Rejected("a", "b"),),
        "swaps": ((1, "n1", "n3"),),
        "redo_steps": 7,
        "start": Counters(1, 2, 3, 4, 0.5),
        "asks": True,
        "text": "other words",
    }
    effects = {
        "incident": 2,
        "attempt": 3,
        "slots": ("n0", "n1", "n2"),
        "bars": (),
        "checkpoint": save_id(30),
        "manifest_hash": "other",
        "skip_samples": ((320, 328),),
        "restores": Restores(7),
    }
    assert {f.name for f in fields(Recover)} == {*beside, *effects, "kind"}
    for name, value in beside.items():
        assert digest(replace(PLAN, **{name: value})) == digest(PLAN), name  # type: ignore[arg-type]
    changed = {digest(replace(PLAN, **{name: value})) for name, value in effects.items()}  # type: ignore[arg-type]
    assert len(changed | {digest(PLAN)}) == len(effects) + 1
    assert digest(Finish(Reason.FINISHED, 1)) is None


def test_what_is_held_says_why() -> None:
    held = gate(LAUNCH, PLAN, History(mode="auto"), Rules(mode="auto"))
    assert held == Held("waits for a person: node-lost is not cleared for automation", asks=True)
