"""Notices: three lines and a command, told once; and the command that carries them."""

from dataclasses import replace

import pytest
from test_story import open_plan
from test_story_example import DIGEST, at, ten_forty

from policies.decisions import Continue
from policies.facts import FaultClass
from policies.history import Halted
from policies.reasons import Reason
from supervisor.telling.incident_story import incident_story
from supervisor.telling.notices import not_drained, notice, page, warning
from supervisor.telling.plan_page import plan_text
from supervisor.telling.story import run_story

HOSTILE = "\x1b[2Jn0417\x00\u202e" + "A" * 10_000


def waiting(**fields):
    history, known = ten_forty()
    return replace(open_plan(history), **fields), known


def halted(**fields):
    history, known = ten_forty()
    halt = Halted(
        at("03:10:00", 11), Reason.NO_SPARE, "no healthy spare for slot 417", "another node, or a node brought back", 12
    )
    return replace(history, halted=replace(halt, **fields)), known


def test_a_plan_that_waits_is_three_lines_and_a_command():
    told = notice(waiting()[0], "plan", waiting()[1])
    assert told.text.splitlines() == [
        "relight llm500b: stalled at 10:40:07 CST, waiting for you",
        "n0417 rank 3338: NVRM: Xid 79, GPU has fallen off the bus at 10:40:05; then NCCL timeouts on 5,112 ranks",
        (
            "Plan 8f3a1c: bar n0417, spare n0643 takes slot 417, restart from iteration 41,200 (10:00:00, a0012-i0041200),"
            " 68 iterations to redo, 5,571,200 samples to read again"
        ),
        "relight approve llm500b --plan 8f3a1c",
    ]


def test_a_halt_says_what_was_seen_what_lifts_it_and_what_to_read():
    told = notice(*_halt_args(), hold_s=7200)
    assert told.text.splitlines() == [
        "relight llm500b: halted at 03:10:00 CST, not restarting",
        "no healthy spare for slot 417.",
        "Lifted by: another node, or a node brought back. Barred: n0417. Allocation kept until 05:10:00 CST.",
        'Read: relight runbook no-spare     Then: relight resume llm500b --because "..."',
    ]
    assert "Allocation" not in notice(*_halt_args()).body


def _halt_args():
    history, known = halted()
    return history, "halt", known


def test_the_same_thing_is_told_once():
    history, known = waiting()
    told = notice(history, "plan", known)
    assert notice(replace(history, told=frozenset({told.key})), "plan", known) is None
    # Costs and evidence beside the plan change its text, not the matter.
    dearer = replace(history, decision=replace(history.decision, redo_steps=70))
    assert notice(dearer, "plan", known).key == told.key
    assert notice(replace(history, decision_digest="b02e77" + "0" * 10), "plan", known).key != told.key
    assert notice(*_halt_args()).key == notice(*_halt_args()).key
    assert notice(halted(at=at("04:00:00", 11))[0], "halt").key != notice(*_halt_args()).key


def test_outside_approve_mode_it_says_why_a_person_is_asked():
    history, known = waiting(mode="auto")
    held = "waits for a person: stall is not cleared for automation"
    told = notice(history, "plan", replace(known, held=held))
    assert told.title == (
        "relight llm500b: stalled at 10:40:07 CST, waiting for you: stall is not cleared for automation"
    )
    asked = notice(history, "plan", replace(known, held="waits for a person (mode approve)"))
    assert asked.title.endswith(", waiting for you")


def test_the_page_on_the_standard_input_is_that_of_the_matter():
    history, known = waiting()
    assert page(history, "plan", known) == plan_text(history, known)
    history, known = halted()
    assert page(history, "halt", known) == incident_story(history, 12, known)
    history, known = halted(incident=None)
    assert page(history, "halt", known) == run_story(history, known)
    # The journal may name an incident that this history does not have, and a plan may be gone by now.
    history, known = halted(incident=99)
    assert page(history, "halt", known) == run_story(history, known)
    assert page(replace(history, decision=None), "plan", known) == run_story(replace(history, decision=None), known)


@pytest.mark.parametrize("answer", ["approvals", "refused"])
def test_an_answered_plan_wakes_nobody(answer):
    history, known = waiting(**{answer: frozenset({DIGEST})})
    assert notice(history, "plan", known) is None


def test_where_there_is_nothing_there_is_no_notice():
    history, known = ten_forty()
    assert notice(history, "plan", known) is None
    assert notice(history, "halt", known) is None


def test_observing_tells_and_does_not_ask():
    told = notice(waiting(mode="observe")[0], "plan", waiting()[1])
    assert told.title.endswith("only observing")
    assert "approve" not in told.text


def test_what_died_is_stopped_not_stalled():
    history, known = waiting()
    lost = replace(history, decision=replace(history.decision, fault=FaultClass.NODE_LOST))
    assert "llm500b: stopped at 10:40:07" in notice(lost, "plan", known).title


def test_an_unknown_cause_is_said():
    history, known = waiting()
    blank = replace(history, incidents=(replace(history.incidents[0], diagnosis=None),))
    assert "; earliest error not found" in notice(blank, "plan", known).body


def test_a_start_from_nothing_is_said():
    history, known = waiting()
    plan = replace(history.decision, incident=None, checkpoint=None, bars=(), swaps=(), redo_steps=0)
    told = notice(replace(history, decision=plan), "plan", known)
    assert told.text.splitlines()[2] == "Plan 8f3a1c: start from nothing"


def test_hostile_text_reaches_no_notice():
    history, known = waiting(run=HOSTILE)
    incident = history.incidents[0]
    first = replace(incident.diagnosis.first[0], text=HOSTILE, node=HOSTILE)
    planted = replace(incident, diagnosis=replace(incident.diagnosis, first=(first,), cascade=HOSTILE))
    plan = replace(history.decision, bars=(HOSTILE,), swaps=((417, "n0417", HOSTILE),))
    told = notice(replace(history, incidents=(planted,), decision=plan), "plan", known)
    assert len(told.text.splitlines()) == 4
    assert len(told.text) < 1500
    assert not [c for c in told.text if c != "\n" and (ord(c) < 32 or c == "\u202e")]
    seen = notice(
        replace(halted()[0], run=HOSTILE, halted=replace(halted()[0].halted, seen=HOSTILE, lifts=HOSTILE)),
        "halt",
        known,
    )
    assert len(seen.text.splitlines()) == 4


def test_a_warning_is_told_once_an_attempt_and_stops_nothing():
    history, known = ten_forty()
    decision = Continue(Reason.NO_ROOM, None, "The store has 3 GB free; x took 4 GB, the next save wants 5 GB")
    told = warning(history, decision, known)
    assert told.text.splitlines()[1:] == [
        "The store has 3 GB free; x took 4 GB, the next save wants 5 GB.",
        "Nothing is stopped or deleted for it.",
        "Read: relight runbook no-room-for-checkpoint",
    ]
    assert told.title.startswith("relight llm500b: running, but look at it soon (no-room-for-checkpoint)")
    assert warning(replace(history, told=frozenset({told.key})), decision, known) is None
    bare = warning(replace(history, attempts=()), decision)
    assert (bare.key, bare.title) == (
        "warning:no-room-for-checkpoint:0",
        "relight llm500b: running, but look at it soon (no-room-for-checkpoint)",
    )
    assert page(history, "warning", known) == run_story(history, known)


def test_that_bars_hold_in_this_run_alone_is_told_once_with_what_to_ask_for():
    history, known = ten_forty()
    assert not_drained(history, known) is None
    refused = replace(history, drain_refused="scontrol update ended with 1: slurm_update error: Invalid user id")
    told = not_drained(refused, known)
    assert told.text.splitlines() == [
        "relight llm500b: the cluster does not keep others from n0417 (drain-refused)",
        "scontrol update ended with 1: slurm_update error: Invalid user id.",
        "This run does not use it again; other jobs may get it. Ask the administrators to drain it, or for operator rights.",
        "Read: relight runbook drain-refused",
    ]
    assert not_drained(replace(refused, told=frozenset({told.key})), known) is None
    nasty = not_drained(replace(history, drain_refused=HOSTILE), known)
    assert nasty.text.replace("\n", "").isprintable()
    assert len(nasty.text) < 1000


def test_a_link_leads_to_the_plan_on_the_console_and_stands_before_the_command():
    told = notice(*waiting_args())
    lines = told.linked("https://ops.example:8440/").text.splitlines()
    assert lines[-2:] == [
        f"https://ops.example:8440/#run=llm500b&plan={DIGEST}",
        "relight approve llm500b --plan 8f3a1c",
    ]
    assert told.linked("") == told
    assert "plan=" not in notice(*_halt_args()).linked("http://x").text
    assert "http://x/#run=llm500b\n" in notice(*_halt_args()).linked("http://x").text
    assert "run=a%26plan%3D1%23" in replace(told, run="a&plan=1#").linked("http://x").text


def waiting_args():
    history, known = waiting()
    return history, "plan", known
