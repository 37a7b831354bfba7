"""Stories of what is unknown, hostile, over midnight, open, halted; the run; the moment; the same for programs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from test_story_example import CST, DIGEST, at, nodes, ten_forty

from policies.decisions import Contain, Finish, Halt, PlannedStop, Recover, Wait
from policies.facts import (
    UNKNOWN,
    AttemptView,
    CheckpointPhase,
    CheckpointState,
    Counters,
    FaultClass,
    NodeState,
    NodeView,
    Phase,
    Replay,
    StepRow,
    View,
)
from policies.history import Attempt, Books, Choice, Diagnosis, Halted, History, HoldingJob, Incident, Times, Trouble
from policies.layout import Layout
from policies.reasons import Reason
from supervisor.telling.incident_facts import split
from supervisor.telling.story import Known, incident_story, run_story, standing, status_text, to_json


def changed(**fields):
    """The 10:40 history with other fields of its incident."""
    history, known = ten_forty()
    return replace(history, incidents=(replace(history.incidents[0], **fields),)), known


def times(**fields):
    return replace(ten_forty()[0].incidents[0].times, **fields)


def bare(**fields):
    """An incident of which only the trouble is known."""
    trouble = Trouble(
        FaultClass.RANK_DIED, Reason.RANK_DIED, at("10:40:18"), 1, True, "rank 3 on n001 ended by SIGKILL"
    )
    return History(run="demo", incidents=(Incident(1, 1, trouble, Times(), 41, 328),), **fields)


def open_plan(history, **fields):
    """The history before anybody has answered."""
    plan = Recover(
        reason=Reason.STALL,
        incident=12,
        fault=FaultClass.STALL,
        died=False,
        stops=12,
        attempt=13,
        slots=tuple("n0643" if n == "n0417" else n for n in nodes()),
        bars=("n0417",),
        checkpoint="a0012-i0041200",
        checkpoint_step=41200,
        manifest_hash="ab",
        swaps=((417, "n0417", "n0643"),),
        redo_steps=68,
    )
    decided = Times(last_good=at("10:40:07"), detected=at("10:40:18"), evidence=at("10:40:21"), decided=at("10:40:22"))
    incident = replace(
        history.incidents[0], times=decided, closed=False, approved_by=None, barred=(), swaps=(), replay=None
    )
    return replace(
        history,
        incidents=(incident,),
        attempts=history.attempts[:1],
        bars=(),
        decision=replace(plan, **fields),
        decision_digest=DIGEST,
        decided_at=at("10:40:22"),
    )


# --- unknown -------------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_said_or_left_out():
    told = incident_story(bare(), 1, Known(zone=CST))
    assert told.splitlines() == [
        "Incident 1 (2026-06-10, CST). Open since 10:40:18.",
        "10:40:18  rank 3 on n001 ended by SIGKILL.  [rank-died]",
        "          Earliest error: not yet known.",
    ]


def test_where_a_rank_has_died_nothing_hung():
    """The category stays as it is for programs."""
    history = bare()
    history = replace(history, incidents=(replace(history.incidents[0], diagnosis=Diagnosis()),))
    assert "No suspect (category unknown, confidence 0.00)." in incident_story(history, 1)
    assert to_json(history, 1)["incidents"][0]["diagnosis"]["category"] == "hang.unknown"


def test_a_diagnosis_that_found_nobody_says_so():
    history, known = changed(diagnosis=Diagnosis(), barred=())
    told = incident_story(replace(history, bars=()), 12, known)
    assert "Earliest error: not found." in told
    assert "No suspect (category hang.unknown, confidence 0.00)." in told
    assert "barred" not in told


def test_errors_that_the_clocks_cannot_order_are_all_told():
    history, known = ten_forty()
    first = history.incidents[0].diagnosis.first[0]
    other = replace(first, node="n0031", rank=250, wall=None, offset_bound=2.5)
    told = incident_story(changed(diagnosis=Diagnosis(first=(first, other), suspects=("n0417", "n0031")))[0], 12, known)
    assert told.count("[one of 2: the clocks cannot say which was first]") == 2
    assert "          When: unknown." in told
    assert "The clock of its node is known to 2.5 s only." in told
    assert "Suspect: n0417, n0031" in told


def test_counters_that_are_missing_make_no_cost():
    history, known = changed(checkpoint_samples=0, checkpoint_step=None)
    told = incident_story(history, 12, known)
    assert "read again" not in told
    assert "to redo" not in told


def test_a_story_without_saves_or_layout_keeps_its_other_lines():
    history, _ = ten_forty()
    told = incident_story(history, 12, Known(zone=CST))
    assert "Way back: iteration 41,200 (a0012-i0041200).\n" in told
    assert "n0643 takes slot 417 of n0417.\n" in told
    assert "Plan 8f3a1c. Approved 10:52:30 by li.wei" in told


def test_the_samples_being_read_and_a_second_look_are_told():
    history, known = changed(diagnosis=Diagnosis(data=(1000, 8)), times=times(confirmed=at("10:40:20")))
    told = incident_story(history, 12, known)
    assert "Being read: samples 1,000 to 1,007." in told
    assert "10:40:20  Looked again: confirmed.\n" in told


def test_where_no_way_back_was_found_the_reasons_are_told():
    history, known = changed(checkpoint=None, closed=False)
    told = incident_story(replace(history, attempts=history.attempts[:1]), 12, known)
    assert "Way back: none found.\n          Rejected: a0012-i0041260, still being written" in told


def test_a_closed_incident_without_its_times_claims_no_duration():
    assert "Closed; how long it took is not known." in incident_story(*_twelve(*changed(times=times(last_good=None))))


def test_a_plan_that_is_not_on_record_has_no_id():
    history, known = ten_forty()
    assert "Plan. Approved 10:52:30 by li.wei" in incident_story(replace(history, plans=((11, DIGEST),)), 12, known)


def test_a_start_from_nothing_says_so():
    history, known = changed(checkpoint=None, checkpoint_step=None, checkpoint_samples=0, rejected=())
    told = incident_story(history, 12, known)
    assert "Way back: from nothing; no save was completed." in told
    assert "as in the manifest" not in told
    assert "41,268 iterations to redo, 3.4 G samples read again" in told


def test_a_limited_acceptance_claims_no_digests():
    history, known = ten_forty()
    limited = tuple(replace(a, limited=True) for a in history.attempts)
    told = incident_story(replace(history, attempts=limited), 12, known)
    assert "Accepted on log lines and exits only" in told
    assert "as in the manifest" not in told


def test_what_was_loaded_is_no_claim_before_acceptance():
    history, known = changed(times=times(next_good=None, caught_up=None), closed=False)
    waiting = replace(history, attempts=(history.attempts[0], replace(history.attempts[1], accepted_at=None)))
    told = incident_story(waiting, 12, known)
    assert "10:59:10  Loaded.\n" in told
    assert "First update" not in told


def test_a_missing_incident_is_an_error_of_one_line():
    history, known = ten_forty()
    with pytest.raises(LookupError, match="llm500b has no incident 7; it has 12"):
        incident_story(history, 7, known)
    with pytest.raises(LookupError, match="it has none"):
        to_json(History(run="x"), 1)


# --- the proof of a swap -------------------------------------------------------------------------------------------


def test_a_swap_that_moved_another_rank_is_not_called_good():
    history, known = ten_forty()
    moved = list(history.attempts[1].slots)
    moved[5] = moved[4]  # one node in two slots: the groups are not those from before
    planted = replace(history, attempts=(history.attempts[0], replace(history.attempts[1], slots=tuple(moved))))
    told = incident_story(planted, 12, known)
    assert "GROUPS DIFFER" in told
    assert "as before but for" not in told


# --- hostile -------------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07Xid 79\r\n10:40:00  all is well\x00\u202e\u2066 \x9b31mred\ud800" + "A" * 10_000


def test_hostile_text_is_cleaned_before_it_is_printed():
    history, known = ten_forty()
    incident = history.incidents[0]
    finding = replace(incident.diagnosis.first[0], text=HOSTILE, node=HOSTILE)
    planted = replace(
        incident,
        diagnosis=replace(incident.diagnosis, first=(finding,), suspects=(HOSTILE,), cascade=HOSTILE, category=HOSTILE),
        trouble=replace(incident.trouble, text=HOSTILE),
        rejected=(replace(incident.rejected[0], id=HOSTILE, why=HOSTILE),),
        swaps=((417, HOSTILE, HOSTILE),),
        barred=(HOSTILE,),
        checkpoint=HOSTILE,
        approved_by=HOSTILE,
        evidence=HOSTILE,
    )
    hurt = replace(history, run=HOSTILE, incidents=(planted,), ended=HOSTILE)
    lines_of_clean = len(incident_story(history, 12, known).splitlines())
    for told in (
        incident_story(hurt, 12, known),
        run_story(hurt, known),
        status_text(hurt, None, at("11:00:00"), known),
    ):
        assert not [c for c in told if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\ud800")]
        assert "owned" not in told
        told.encode("utf-8")
        assert max(map(len, told.splitlines())) < 1200
    assert len(incident_story(hurt, 12, known).splitlines()) == lines_of_clean  # no line of its own was planted


@pytest.mark.parametrize("wall", [float("nan"), float("inf"), -1e300, 9e15])
def test_a_time_that_is_none_stays_unknown(wall):
    history, known = ten_forty()
    first = replace(history.incidents[0].diagnosis.first[0], wall=wall)
    told = incident_story(changed(diagnosis=Diagnosis(first=(first,)))[0], 12, known)
    assert "          When: unknown." in told


# --- time ----------------------------------------------------------------------------------------------------------


def test_midnight_has_a_line_of_its_own():
    late = Times(
        last_good=at("23:59:50"), detected=at("23:59:58"), evidence=at("00:00:03", 11), decided=at("00:00:04", 11)
    )
    saves = (replace(ten_forty()[1].checkpoints[0], saved_at=at("23:40:00"), completed_at=at("23:47:00")),)
    history, known = changed(times=late, closed=False)
    told = incident_story(replace(history, bars=()), 12, replace(known, checkpoints=saves))
    lines = told.splitlines()
    assert (
        lines.index("-- 2026-06-11, CST") == next(i for i, line in enumerate(lines) if line.startswith("00:00:03")) - 1
    )
    assert "saved 2026-06-10 23:40:00" in told


def test_a_change_of_the_clocks_has_a_line_of_its_own():
    berlin = ZoneInfo("Europe/Berlin")
    before = datetime(
        2026, 10, 25, 0, 59, 50, tzinfo=UTC
    ).timestamp()  # 02:59:50 CEST; ten seconds later it is 02:00 CET
    history, known = changed(times=Times(last_good=before, detected=before + 20), closed=False, diagnosis=None)
    told = incident_story(replace(history, started_at=None), 12, replace(known, zone=berlin))
    assert told.index("02:59:50") < told.index("-- 2026-10-25, CET") < told.index("02:00:10")
    assert "(2026-10-25, CEST)" in told


def test_a_zone_without_letters_is_told_as_its_offset():
    history, known = ten_forty()
    told = incident_story(history, 12, replace(known, zone=timezone(timedelta(hours=8))))
    assert "(2026-06-10, UTC+08:00)" in told
    assert "10:40:05  n0417" in told


def test_the_order_is_that_of_the_times_not_of_the_telling():
    history, known = changed(times=times(stopped=at("10:40:20")))
    lines = incident_story(history, 12, known).splitlines()
    stamps = [line[:8] for line in lines[1:] if line[2:3] == ":"]
    assert stamps == sorted(stamps)
    assert stamps.index("10:40:20") < stamps.index("10:40:22")


def test_the_parts_of_the_time_add_up_to_the_whole():
    whole = ten_forty()[0].incidents[0].times
    assert sum(seconds for _, seconds in split(whole)) == pytest.approx(whole.caught_up - whole.last_good)


# --- open, halted, followed ----------------------------------------------------------------------------------------


def test_an_open_plan_waits():
    history, known = ten_forty()
    now = replace(known, now=at("10:45:07"))
    told = incident_story(open_plan(history), 12, now)
    assert "Open since 10:40:07, for 5 min." in told
    assert "Plan 8f3a1c. Waiting for approval." in told
    assert (
        "It would bar n0417. n0643 takes slot 417 of n0417: TP, PP and DP groups as before but for that one place."
        in told
    )
    assert "Cost:" not in told


def test_a_swap_that_is_only_planned_is_not_told_as_done():
    history, known = ten_forty()
    swaps = history.incidents[0].swaps  # the fold writes them down with the decision
    told = incident_story(
        replace(open_plan(history), incidents=(replace(open_plan(history).incidents[0], swaps=swaps),)), 12, known
    )
    assert told.count("n0643") == told.count("It would bar") == 1


@pytest.mark.parametrize(
    ("fields", "held", "said"),
    [
        ({"mode": "observe"}, "", "Only observing: this is what would be done."),
        ({"mode": "auto"}, "", "Being carried out."),
        (
            {"mode": "auto"},
            "stall is not cleared for automation",
            "Waiting for approval (stall is not cleared for automation).",
        ),
        ({"approvals": frozenset({DIGEST})}, "", "Approved; being carried out."),
        ({"refused": frozenset({DIGEST})}, "", "Refused."),
        ({"paused": True}, "", "The run is paused: nothing is carried out until a person resumes it."),
        ({"paused": True, "approvals": frozenset({DIGEST})}, "", "Approved; the run is paused: nothing is carried out"),
        ({"mode": "observe", "approvals": frozenset({DIGEST})}, "", "Only observing: this is what would be done."),
        (
            {"choice": Choice(checkpoint="a0012-i0041200", keep_nodes=("n0417",))},
            "",
            "As changed by a person: checkpoint, nodes kept.",
        ),
    ],
)
def test_how_an_open_plan_stands(fields, held, said):
    history, known = ten_forty()
    told = incident_story(replace(open_plan(history), **fields), 12, replace(known, held=held))
    assert f"Plan 8f3a1c. {said}" in told or said in told
    assert ("Waiting for approval" in told) == ("Waiting" in said or "changed" in said)


def test_a_plan_that_asks_waits_in_auto_mode_too():
    history, known = ten_forty()
    assert "Waiting for approval." in incident_story(replace(open_plan(history, asks=True), mode="auto"), 12, known)


def test_what_was_not_asked_is_not_called_approved():
    history, known = changed(approved_by=None, times=times(approved=None))
    told = incident_story(history, 12, known)
    assert "Plan 8f3a1c. Carried out without asking." in told
    assert "waiting for approval" not in told


def test_a_halt_and_a_following_incident_are_in_the_title():
    history, known = changed(closed=False, times=times(next_good=None, caught_up=None))
    halt = Halted(at("11:00:00"), Reason.NO_SPARE, "no healthy spare for slot 417", "another node", 12)
    assert "Halted at 11:00:00: no-spare. Not restarting" in incident_story(replace(history, halted=halt), 12, known)
    after = replace(history.incidents[0], number=13, follows=12)
    followed = replace(history, incidents=(replace(history.incidents[0], closed=True), after))
    assert "Not back before incident 13, which follows." in incident_story(followed, 12, known)
    assert "Follows incident 12." in incident_story(followed, 13, known)
    back = replace(ten_forty()[0].incidents[0], times=times(caught_up=None))
    assert "never caught up: incident 13 follows." in incident_story(
        replace(history, incidents=(back, after)), 12, known
    )


@pytest.mark.parametrize(
    ("replay", "said"),
    [
        (
            Replay(68, 2, 2.1e-3, 41230, None),
            "68 losses laid over the first pass: 2 differ, first at iteration 41,230, by 0.0021 at most",
        ),
        (Replay(1, 0, 1e-6, None, None), "1 loss laid over the first pass: all within 1e-06 (relative)."),
        (Replay(68, 0, 0.0, None, 41205), "The data differ from iteration 41,205 on."),
        (Replay(0, 0, 0.0, None, None), "No losses of a first pass to compare with."),
    ],
)
def test_a_replay_is_told_as_it_went(replay, said):
    assert said in incident_story(*_twelve(*changed(replay=replay)))
    going_on = incident_story(*_twelve(*changed(replay=replay, times=times(caught_up=None))))
    assert said in next(line for line in going_on.splitlines() if line.strip().startswith("Probation: "))


def _twelve(history, known):
    return history, 12, known


# --- the run -------------------------------------------------------------------------------------------------------


def test_the_run_is_told_with_its_ledgers_and_its_time():
    history, known = ten_forty()
    told = run_story(history, replace(known, now=at("12:00:00")))
    assert "Attempt 13: 2026-06-10 10:52:33 CST, from a0012-i0041200, open." in told
    assert (
        "Incident 12: 2026-06-10 10:40:18 CST, stall (infrastructure), suspect: n0417. 68 iterations to redo." in told
    )
    assert "Updates: 41,334 computed = 41,266 in the current lineage + 68 rolled back; 2 skipped." in told
    assert "Neither down nor redone: 99.6% of the time since the start." in told


def test_the_time_between_two_jobs_is_told_and_counts_as_down():
    first = Attempt(1, ("n1",), None, 0, 0.0, None, accepted_at=10.0, closed_at=4000.0)
    left = History(run="x", started_at=0.0, attempts=(first,), ended="next-job")
    waits = run_story(left, Known(now=10_000.0))
    said = "Neither down nor redone: 40.0% of the time since the start. Between attempts, without a fault: 1 h 40 min;"
    assert said in waits
    over = run_story(replace(left, ended="stopped"), Known(now=10_000.0))
    assert "Neither down nor redone: 100.0% of the time since the start.\n" in over


def test_ledgers_that_do_not_add_up_are_named_first():
    told = run_story(History(run="x", books=Books(computed=1, rolled_back=2)))
    assert "The ledgers do not add up: more was rolled back than computed." in told
    assert "do not add up" not in run_story(History(run="x", books=Books(computed=2, rolled_back=2)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "not started yet."),
        ({"ended": "finished"}, "finished."),
        ({"paused": True}, "paused"),
        (
            {"halted": Halted(1.0, Reason.NO_PROGRESS, "3 attempts, no update", "a person")},
            "halted (no-progress), not restarting.",
        ),
    ],
)
def test_the_first_words_say_how_it_stands(fields, said):
    assert run_story(History(run="x", **fields)).startswith(f"x: {said}")
    assert status_text(History(run="x", **fields), None, 2.0).startswith(f"x: {said}")


# --- the moment ----------------------------------------------------------------------------------------------------


def view(**fields):
    looked = NodeView(
        "", NodeState.UP, 0.0, agent=True, checked_at=at("11:44:20"), checks=9, unchecked=("nvrx: not here",)
    )
    up = {n: replace(looked, name=n) for n in (*nodes(), "n0643", "n0644")}
    up["n0001"] = NodeView("n0001", NodeState.SILENT, at("11:44:50"))
    row = StepRow(13, 41300, 1, 1, 0, 2.25, 1.4e-4, None, 35.0, at("11:44:57"))
    running = AttemptView(
        13, running=True, frontier=41300, last_step=row, last_advance=at("11:44:57"), phase=Phase.STEP, behind=(8,)
    )
    saves = (
        ten_forty()[1].checkpoints[0],
        CheckpointState("a0013-i0041300", 13, 41300, CheckpointPhase.IN_PROGRESS, at("11:44:57")),
    )
    seen = View(nodes=up, attempt=running, checkpoints=saves, cluster_as_of=at("11:44:59"), store_as_of=at("11:44:58"))
    return replace(seen, **fields)


def status(history=None, **fields):
    own, known = ten_forty()
    return status_text(history or own, view(**fields), at("11:45:00"), known)


def test_the_status_is_ten_lines_that_say_where_it_stands():
    told = status()
    assert len(told.splitlines()) <= 11
    assert (
        "Iteration 41,300, running, phase step, last advance 3 s ago, loss 2.25, learning rate 0.00014. Behind: ranks 8."
        in told
    )
    assert "Nodes: 639 of 640 slots up; 1 hot spare ready; barred: n0417. Not up: n0001 (silent). Seen 1 s ago." in told
    assert "Spares: n0644 (9 checks, 40 s ago; could not look: nvrx)." in told
    assert "Way back: iteration 41,200 (a0012-i0041200), saved 10:00:00, completed 10:07:41." in told
    assert "1 completed save; not completed: iteration 41,300 (in-progress). Store seen 2 s ago." in told


def test_a_spare_is_hot_only_when_its_checks_are_told_and_why_not_is_said():
    for field, why in (
        ({"checked_at": None}, "is none: not checked yet"),
        ({"unhealthy": ("gpus: 7 of 8",)}, "is none: unhealthy: gpus: 7 of 8"),
        ({"agent": False}, "no agent answers there"),
    ):
        seen = dict(view().nodes)
        seen["n0644"] = replace(seen["n0644"], **field)
        told = status(nodes=seen)
        assert "0 hot spares ready" in told
        assert f"Spares: n0644 {why}." in told


def test_a_bar_that_holds_in_this_run_alone_is_said_as_long_as_it_holds():
    own, _ = ten_forty()
    refused = replace(own, drain_refused="scontrol update ended with 1: Invalid user id")
    line = (
        "Not drained, barred in this run alone: n0417. scontrol update ended with 1: Invalid user id."
        " See: relight runbook drain-refused"
    )
    assert line in status(refused).splitlines()
    assert "Not drained" not in status(replace(refused, bars=()))
    assert "Not drained" not in status()
    assert to_json(refused)["drain_refused"] == refused.drain_refused


def test_an_unknown_part_is_never_told_as_healthy():
    told = status(nodes=UNKNOWN, checkpoints=UNKNOWN, attempt=None, cluster_as_of=at("11:44:30"))
    assert "Nodes: unknown; the cluster cannot be read for 30 s." in told
    assert "Checkpoints: unknown; the store cannot be read." in told
    assert "Its ranks: not seen." in told
    assert "slots up" not in told
    blind = status(attempt=AttemptView(13, running=UNKNOWN))
    assert "unknown whether running" in blind


def test_a_node_that_the_cluster_does_not_show_is_not_up():
    seen = dict(view().nodes)
    del seen["n0002"]
    assert "Not up: n0001 (silent), n0002 (unknown)." in status(nodes=seen)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"decision": Wait(Reason.SEALING, at("11:46:00"), "a newer save is checked")},
            "Waiting until 11:46:00 at the latest (sealing-checkpoint). a newer save is checked.",
        ),
        (
            {"decision": Halt(Reason.NO_SPARE, "no healthy spare", "a node", None, None)},
            "About to halt (no-spare): no healthy spare.",
        ),
        (
            {"decision": PlannedStop(Reason.PLANNED_STOP, 13)},
            "Now: the ranks are asked to save and stop (planned-stop).",
        ),
        (
            {"decision": PlannedStop(Reason.PLANNED_STOP, 13, down=True)},
            "Now: what has not stopped by itself is stopped (planned-stop).",
        ),
        (
            {"decision": Finish(Reason.FINISHED, 13)},
            "Now: what is left is sealed, then the nodes are let go (finished).",
        ),
        (
            {"decision": Contain(Reason.STALL, 12, 13, died=False)},
            "Now: the evidence is kept, then the attempt is stopped (stall).",
        ),
        (
            {"halted": Halted(at("11:40:00"), Reason.NO_SPARE, "seen", "another node")},
            "Lifted by: another node. See: relight runbook no-spare",
        ),
    ],
)
def test_what_comes_next_is_said(fields, said):
    assert said in status(replace(ten_forty()[0], **fields))


def test_what_has_been_done_is_not_next_any_more():
    left = replace(ten_forty()[0], decision=PlannedStop(Reason.PLANNED_STOP, 13), ended="next-job")
    assert "Now:" not in status(left)
    assert to_json(left)["plan"]["kind"] == "planned-stop"


def test_a_waiting_plan_names_its_command_once_it_waits():
    history = open_plan(ten_forty()[0])
    assert "Waiting for you: relight approve llm500b --plan 8f3a1c" in status(history)
    assert "relight approve" not in status(replace(history, approvals=frozenset({DIGEST})))


# --- for programs --------------------------------------------------------------------------------------------------


def test_the_json_has_a_schema_and_holds_what_the_story_holds():
    history, known = ten_forty()
    data = json.loads(json.dumps(to_json(history, 12, known)))
    assert data["schema"] == 1
    one = data["incidents"][0]
    assert one["story"] == incident_story(history, 12, known)
    assert (one["plan"], one["lost_s"], one["redo_iterations"], one["samples_read_again"]) == (
        DIGEST,
        1188.0,
        68,
        5_571_200,
    )
    assert data["ledgers"]["lineage"] == 41_266


def test_the_json_of_an_empty_and_of_an_open_run_can_be_written():
    history, known = ten_forty()
    for one in (History(), bare(), open_plan(history)):
        assert json.loads(json.dumps(to_json(one, None, known)))["schema"] == 1
    layout = Layout(tp=8, pp=8, dp=80, ranks_per_node=8)
    assert incident_story(open_plan(history), 12, Known(layout=layout)).startswith("Incident 12, day 10")


def test_the_status_counts_what_the_running_attempt_has_computed() -> None:
    """A newcomer saw "0 computed" at iteration 24: the books were closed only at the end of the attempt."""
    began = Counters(0, 0, 0, 0, 0.1)
    attempt = Attempt(1, ("n0",), None, 0, 10.0, None, accepted_at=11.0, began=began)
    row = StepRow(1, 24, 192, 23, 1, 2.0, 0.1, 1.0, 0.1, 20.0)
    view = View(nodes={}, checkpoints=(), attempt=AttemptView(1, running=True, frontier=24, last_step=row))
    told = status_text(History(run="r", mode="auto", attempts=(attempt,)), view, 21.0)
    assert "Updates: 23 computed" in told


def test_where_nobody_watches_that_comes_first() -> None:
    """What was so while somebody watched comes after it; the end needs no watcher, and a halt is never hidden."""
    known = Known(zone=UTC, now=100.0, unwatched=True, unwatched_since=40.0, take_over="relight run --run-dir /r")
    gone = "no controller is alive since 00:00:40; this is what the last one wrote."
    lines = status_text(replace(ten_forty()[0], run="r"), None, 100.0, known).splitlines()
    assert lines[:3] == [f"r: {gone}", "Take over: relight run --run-dir /r", "r: no incident is open."]
    halted = History(run="r", halted=Halted(1.0, Reason.NO_SPARE, "none is left", "a spare"))
    on = 'To go on: relight resume r --because "...", then relight run --run-dir /r'
    assert status_text(halted, None, 100.0, known).splitlines()[1] == on
    in_job = replace(halted, job=HoldingJob("12", "s", 1.0))
    assert status_text(in_job, None, 100.0, known).splitlines()[1].startswith(f"{on}; where its job is over, submit")
    assert standing(History(run="r"), known) == f"{gone} Before: not started yet."
    assert standing(History(run="r", ended="It is done"), known) == "It is done."
    halted = standing(History(run="r", halted=Halted(1.0, Reason.SAME_DATA, "x", "y")), known)
    assert halted.startswith("halted (same-data)")
    assert f" N{gone[1:]}" in halted
