"""Which notice is due: by what is decided, what the gate says, and what was told."""

from dataclasses import replace

import pytest
from test_notices import halted, waiting
from test_story_example import DIGEST, ten_forty

from policies.decisions import Contain, Continue, Recover, Wait
from policies.history import History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import Rules
from supervisor.gate import Held
from supervisor.telling.due import due, what
from supervisor.telling.incident_story import incident_story
from supervisor.telling.notices import page, paused

ASKS, HELD = Held("waits for a person (mode approve)", asks=True), Held("the run is paused", asks=False)
CONTAIN = Contain(Reason.RANK_DIED, 12, 12, died=True)


def open_history(**fields):
    """10:40 as it was before anything was planned."""
    history, known = ten_forty()
    one = history.incidents[0]
    one = replace(one, closed=False, times=replace(one.times, next_good=None, decided=None, approved=None))
    return replace(history, incidents=(one,), **fields), known


def test_what_is_told_of_what():
    history, _ = waiting()
    plan = history.decision
    assert isinstance(plan, Recover)
    assert what(history, plan, ASKS) == "plan"
    assert what(history, plan, None) is None  # it is being carried out
    assert what(replace(history, mode="observe"), plan, HELD) == "plan"
    assert what(replace(history, mode="observe"), CONTAIN, HELD) is None
    assert what(halted()[0], plan, None) == "halt"
    assert what(History(), Continue(Reason.NO_ROOM), None) == "warning"
    assert what(History(), Continue(Reason.RUNNING), None) is None
    assert what(History(), Wait(Reason.ARCHIVE_BLIND, 1.0, tells=True), None) == "warning"
    assert what(History(), Wait(Reason.SEALING, 1.0), None) is None


def test_a_fault_in_a_paused_run_is_told_for_nothing_is_done_about_it():
    history, known = open_history(paused=True)
    assert what(history, CONTAIN, HELD) == "paused"
    assert what(replace(history, paused=False), CONTAIN, None) is None
    told = due(history, CONTAIN, "paused", known, Rules())
    assert told.text.splitlines() == [
        "relight llm500b: stopped at 10:40:07 CST, and the run is paused",
        "n0417 rank 3338: NVRM: Xid 79, GPU has fallen off the bus at 10:40:05; then NCCL timeouts on 5,112 ranks",
        "Nothing is stopped, barred or started until it is resumed.",
        "relight resume llm500b",
    ]
    assert page(history, "paused", known) == incident_story(history, 12, known)
    assert due(replace(history, told=frozenset({told.key})), CONTAIN, "paused", known, Rules()) is None
    # Whoever has paused it after its plan was told knows of it.
    assert paused(replace(history, decision_digest=DIGEST, told=frozenset({f"plan:{DIGEST}"})), known) is None
    assert paused(replace(history, incidents=()), known) is None
    bare = Incident(1, 1, Trouble(CONTAIN_FAULT, Reason.RANK_DIED, 5.0, 1, died=True, text=""), Times(), 0, 0)
    assert "earliest error not found" in paused(replace(history, incidents=(bare,)), known).body


CONTAIN_FAULT = ten_forty()[0].incidents[0].trouble.fault


@pytest.mark.parametrize("mode", ["approve", "observe"])
def test_what_was_told_is_told_again_only_where_it_waits(mode):
    history, known = waiting(mode=mode)
    first = due(history, history.decision, "plan", known, Rules())
    assert first.what == "plan"
    later = replace(history, told=frozenset({first.key}))
    assert due(later, history.decision, "plan", known, Rules()) is None
