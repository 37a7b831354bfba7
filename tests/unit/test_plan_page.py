"""The page of the open plan: what it says, what it leaves out, and that it is right when the facts are odd."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from test_story import open_plan
from test_story_example import CST, DIGEST, LOADED, at, nodes, ten_forty

from policies.decisions import Halt, Recover
from policies.facts import Counters, FaultClass, Rejected
from policies.history import Bar, Diagnosis, History, Incident, Times, Trouble
from policies.reasons import Reason
from policies.rules import Rules, as_text
from supervisor.actions import Launch, Stop
from supervisor.commands.plan import command
from supervisor.gate import Held, gate
from supervisor.journal.entries import Decided, IncidentOpened, Intended, RunStarted
from supervisor.journal.journal import Journal
from supervisor.rundir import RunDir
from supervisor.settings import Settings, freeze
from supervisor.telling.plan_page import plan_json, plan_text
from supervisor.telling.story import Known

HOSTILE = "\x1b[2J\u202efine\x00" + "A" * 10_000

PAGE = """\
llm500b: plan 8f3a1c. Waiting for approval.
Incident 12 (stall). Stalled at 2026-06-10 10:40:07 CST, 12 min 15 s ago.

Earliest error: 10:40:05 n0417, rank 3338: NVRM: Xid 79, GPU has fallen off the bus.
Seen: 5,120 ranks stand in the phase step. No step for 11.2 s (limit 10.5 s): a stall.
Then: NCCL timeouts on 5,112 ranks.
Evidence: 640 stacks, 214 log excerpts, node states; in incidents/0012/.
Suspect: n0417 (confidence 0.95).
n0417: no earlier bar or incident.

Stop: attempt 12, fenced first. Nothing of it has died.
Bar: n0417 (evidence of hardware.gpu).
Swap: n0643 takes slot 417 of n0417: TP, PP and DP groups as before but for that one place.
Start: attempt 13 from iteration 41,200 (a0012-i0041200), saved 10:00:00, completed 10:07:41.
Rejected: a0012-i0041260, still being written (512 of 5,120 files).
To redo: 68 iterations, 5.6 M samples; the first pass took 40 min 7 s.
Lost so far: 1,045.3 GPU-hours (a GPU a rank); 85.3 more a minute of waiting.

A no halts the run: attempt 12 is left as it stands, nobody is barred, nothing is started until relight resume.
Yes: relight approve llm500b --plan 8f3a1c
No: relight refuse llm500b --plan 8f3a1c --because "..."
Change: relight plan llm500b --checkpoint ID
Change: relight plan llm500b --spare NODE
Change: relight plan llm500b --keep-node n0417
Change: relight plan llm500b --skip-samples FIRST:END
Hold: relight pause llm500b --because "..."; it stays open, and nothing is done until relight resume.
Read: relight explain llm500b 12; relight runbook stall
"""


def waiting(history=None, **fields):
    """The 10:40 plan at 10:52:22, before anybody has answered; `fields` are those of the plan."""
    first, known = ten_forty()
    facts = {
        "start": LOADED,
        "text": "evidence of hardware.gpu",
        "rejected": (Rejected("a0012-i0041260", "still being written (512 of 5,120 files)."),),
    }
    known = replace(known, now=at("10:52:22"), held="waits for a person (mode approve)")
    return open_plan(history or first, **(facts | fields)), known


def of_incident(history, **fields):
    return replace(history, incidents=(*history.incidents[:-1], replace(history.incidents[-1], **fields)))


def earlier(number, **fields):
    """A closed incident of the same run."""
    trouble = Trouble(FaultClass.NODE_LOST, Reason.NODE_LOST, at("02:00:00", 4), number, True, "gone", (), ())
    return replace(Incident(number, number, trouble, Times(), 100, 800, closed=True), **fields)


def test_the_page_of_ten_forty():
    assert plan_text(*waiting()) == PAGE


def test_a_page_fits_a_phone_whatever_the_facts():
    history, known = waiting(
        rejected=tuple(Rejected(f"a0012-i{i:07d}", HOSTILE) for i in range(500)),
        swaps=tuple((i, f"n{i:04d}", f"s{i:04d}") for i in range(500)),
        bars=tuple(f"n{i:04d}" for i in range(500)),
        slots=tuple(f"s{i:04d}" if i < 500 else n for i, n in enumerate(nodes())),
    )
    first = history.incidents[0].diagnosis.first[0]
    found = tuple(replace(first, text=HOSTILE, node=f"n{i:04d}\x1b[0m", wall=None) for i in range(500))
    history = of_incident(history, diagnosis=Diagnosis(found, tuple(f"n{i:04d}" for i in range(500)), cascade=HOSTILE))
    history = of_incident(history, evidence=HOSTILE)
    page = plan_text(history, known)
    assert page.count("\n") <= 40
    assert max(map(len, page.splitlines())) <= 400
    assert all(c.isprintable() for c in page.replace("\n", ""))
    assert "one of 500; the clocks cannot say which was first. 497 more." in page
    assert "Rejected: 497 saves more." in page
    assert "500 slots change hands" in page


def test_groups_that_would_differ_are_shouted():
    # The planted fault: the spare takes its slot, and two other nodes change places on the way.
    _, known = waiting()
    slots = list(waiting()[0].decision.slots)
    slots[3], slots[4] = slots[4], slots[3]
    history, _ = waiting(slots=tuple(slots))
    assert "GROUPS DIFFER: n0004 moved from slot 4 to slot 3" in plan_text(history, known)
    assert plan_json(history, known)["groups_same"] is False
    assert plan_json(*waiting())["groups_same"] is True


def test_without_a_layout_no_proof_and_no_price_is_claimed():
    history, known = waiting()
    page = plan_text(history, replace(known, layout=None))
    assert "Swap: n0643 takes slot 417 of n0417.\n" in page
    assert "Lost: unknown; the layout is not at hand." in page
    told = plan_json(history, replace(known, layout=None))
    assert (told["groups_same"], told["lost_rank_hours"]) == (None, None)


def test_lost_hours_grow_with_the_clock_and_not_without_it():
    history, known = waiting()
    assert "Lost so far: 5,120.0 GPU-hours" in plan_text(history, replace(known, now=at("11:40:07")))
    assert "Lost so far: unknown GPU-hours (a GPU a rank); 85.3 more" in plan_text(history, replace(known, now=None))
    assert "Lost so far: 0.0 GPU-hours" in plan_text(history, replace(known, now=at("10:00:00")))  # a clock set back


def test_what_a_suspect_did_before_is_told():
    history, known = waiting()
    before = (
        earlier(7, barred=("n0417",)),
        earlier(8, diagnosis=Diagnosis(suspects=("n0417", "n0001"))),
        earlier(9, trouble=replace(earlier(9).trouble, nodes=("n0002",))),
    )
    bar = Bar("n0417", at("02:00:00", 4), 7, Reason.NODE_LOST, at("02:00:00", 5))
    history = replace(history, incidents=(*before, *history.incidents), bars=(bar,))
    assert (
        "n0417: barred 2026-06-04 02:00:00 CST until 2026-06-05 02:00:00 CST (incident 7, node-lost);"
        " part of incidents 7, 8.\n" in plan_text(history, known)
    )
    assert plan_json(history, known)["past"][0]["incidents"] == (7, 8)
    forever = replace(history, bars=(replace(bar, until=None),) * 3)
    assert "for good (incident 7, node-lost); barred" in plan_text(forever, known)
    assert "; 1 bar before that;" in plan_text(forever, known)
    came_back = replace(history, bars=(replace(bar, returned_at=at("03:00:00", 5)),))
    assert "02:00:00 CST, back since 2026-06-05 03:00:00 CST (incident 7" in plan_text(came_back, known)


def test_a_spare_with_a_past_is_told_and_one_without_is_not():
    history, known = waiting()
    assert "n0643:" not in plan_text(history, known)
    history = replace(history, incidents=(earlier(9, barred=("n0643",)), *history.incidents))
    assert "n0643: part of incident 9." in plan_text(history, known)


def test_nobody_to_blame_and_nothing_found():
    history, known = waiting(bars=(), swaps=(), slots=nodes(), text="no one node stands apart in this stall")
    page = plan_text(of_incident(history, diagnosis=Diagnosis()), known)
    assert "Earliest error: not found." in page
    assert "Suspect: nobody can be named." in page
    assert "Bar: nobody (no one node stands apart in this stall)." in page
    assert "Swap: No slot changes hands." in page
    assert "--keep-node" not in page
    assert "--spare" not in page
    early = plan_text(of_incident(history, diagnosis=None), known)
    assert "Earliest error: not yet known." in early


def test_a_start_from_nothing_redoes_everything():
    page = plan_text(*waiting(checkpoint=None, checkpoint_step=0, redo_steps=41_268, start=None, rejected=()))
    assert "Start: attempt 13 from nothing; no save was ever completed." in page
    assert "To redo: 41,268 iterations, 3.4 G samples." in page


@pytest.mark.parametrize(
    ("plan", "incident", "said"),
    [
        ({"start": None}, {}, "68 iterations, samples unknown; the"),
        ({}, {"frontier_samples": 0}, "68 iterations, samples unknown; the"),
        ({"redo_steps": 1}, {}, "To redo: 1 iteration, 5.6 M samples"),
        ({}, {"times": Times(decided=1.0)}, "68 iterations, 5.6 M samples.\n"),
        ({}, {"attempt": 11}, "68 iterations, 5.6 M samples.\n"),  # a stop lies between the save and the frontier
        ({}, {"evidence": "", "times": Times(evidence=1.0)}, "Evidence: in incidents/0012/.\n"),
        ({}, {"evidence": "", "times": Times()}, "Evidence: not kept yet.\n"),
        ({"stops": None, "died": True}, {}, "A no halts the run: nobody is barred, nothing is started"),
        ({"stops": None, "fault": FaultClass.NODE_LOST}, {}, "Incident 12 (stall). Stopped at"),
    ],
)
def test_a_part_that_is_not_known_or_not_there(plan, incident, said):
    history, known = waiting(**plan)
    assert said in plan_text(of_incident(history, **incident), known)


@pytest.mark.parametrize(
    ("fields", "first", "has", "lacks"),
    [
        ({"mode": "observe"}, "Only observing: this is what would be done.", "nothing to answer", "relight approve"),
        ({"refused": frozenset({DIGEST})}, "Refused.", "There is nothing to answer.", "relight refuse"),
        ({"approvals": frozenset({DIGEST})}, "Approved; being carried out.", "No: relight refuse", "Yes:"),
        ({"paused": True}, "The run is paused: nothing is carried out until", "Yes: relight approve", "Waiting"),
    ],
)
def test_only_what_can_be_answered_is_offered(fields, first, has, lacks):
    history, known = waiting()
    page = plan_text(replace(history, **fields), replace(known, held=""))
    assert page.startswith(f"llm500b: plan 8f3a1c. {first}")
    assert has in page
    assert lacks not in page


@pytest.mark.parametrize(
    ("mode", "cleared", "said"),
    [
        ("approve", frozenset({FaultClass.STALL}), "attempt 12 is left as it stands, nobody"),
        ("auto", frozenset(), "attempt 12 is left as it stands, nobody"),
        ("auto", frozenset({FaultClass.STALL}), "attempt 12 is stopped, nobody"),
    ],
)
def test_what_a_no_does_to_a_stalled_attempt_is_what_the_gate_does(mode, cleared, said):
    history, known = waiting()
    rules = Rules(mode=mode, cleared=cleared)
    refused = replace(history, mode=mode, rules=as_text(rules), refused=frozenset({DIGEST}))
    stop = gate(Stop(12), Halt(Reason.REFUSED, "", "", 12, 12), refused, rules)
    assert isinstance(stop, Held) == ("left" in said)
    assert said in plan_text(replace(refused, refused=frozenset()), known)


@pytest.mark.parametrize(
    ("mode", "rules", "said"),
    [
        ("approve", Rules(), "Waiting for approval.\n"),
        ("auto", Rules(), "Waiting for approval (stall is not cleared for automation).\n"),
    ],
)
def test_it_says_why_a_person_is_asked_in_the_words_of_the_gate(mode, rules, said):
    history, known = waiting()
    history = replace(history, mode=mode)
    launch = Launch(13, 3, history.decision.slots, "a0012-i0041200", LOADED, 12)
    held = gate(launch, history.decision, history, rules)
    assert isinstance(held, Held)
    assert said in plan_text(history, replace(known, held=held.why))


def test_the_same_facts_go_to_programs():
    history, known = waiting()
    told = json.loads(json.dumps(plan_json(history, known)))
    assert told["digest"] == DIGEST
    assert told["suspects"] == ["n0417"]
    assert told["past"] == [
        {"node": "n0417", "bars": [], "incidents": []},
        {"node": "n0643", "bars": [], "incidents": []},
    ]
    assert told["redo_samples"] == 5_571_200
    assert told["first_pass_s"] == pytest.approx(2407.0)
    assert told["lost_rank_hours"] == pytest.approx(5120 * 735 / 3600)
    assert told["commands"]["approve"] == "relight approve llm500b --plan 8f3a1c"
    assert told["waits"] is True


@pytest.mark.parametrize(
    "history",
    [
        History(run="demo"),
        replace(waiting()[0], decision=None),
        replace(waiting()[0], decision_digest=None),
        replace(waiting(incident=None)[0]),
        replace(waiting()[0], decision=Halt(Reason.NO_SPARE, "seen", "lifts", 12, 12)),
    ],
)
def test_no_open_plan_is_said_in_one_line(history):
    with pytest.raises(LookupError, match=r"no plan is open\. See: relight status"):
        plan_text(history, Known(zone=CST))


# --- the command ---------------------------------------------------------------------------------------------------


def a_run(tmp_path, *, planned=True):
    """A run directory whose journal holds one incident and, where wanted, its open plan; no controller is alive."""
    run = RunDir(str(tmp_path / "demo"))
    run.create()
    freeze(run.root, Settings.model_validate({"run": {"name": "demo"}, "layout": {"dp": 2}}))
    book, _ = Journal.begin(run.journal, lambda: 100.0, "host", 1)
    trouble = Trouble(FaultClass.NODE_LOST, Reason.NODE_LOST, 100.0, 1, True, "n001 is gone", (1,), ("n001",))
    start = Counters(40, 320, 40, 0, 0.001)
    plan = Recover(
        reason=Reason.NODE_LOST,
        incident=1,
        fault=FaultClass.NODE_LOST,
        died=True,
        stops=None,
        attempt=2,
        slots=("n000", "n002"),
        bars=("n001",),
        checkpoint="a0001-i0000040",
        checkpoint_step=40,
        manifest_hash="ab",
        swaps=((1, "n001", "n002"),),
        redo_steps=8,
        start=start,
    )
    launch = Launch(1, 1, ("n000", "n001"), None, Counters(0, 0, 0, 0, None), None)
    entries = [
        RunStarted("demo", "approve", 1, 1, 2, 1),
        Intended(launch),
        IncidentOpened(1, 1, trouble, 90.0, 100.0, 48, 384, None),
    ]
    book.append([*entries, *([Decided(plan, DIGEST[:16])] if planned else [])], 101.0)
    book.close()
    return run


def asked(run, *args):
    told = CliRunner().invoke(command, [run.root, *args], standalone_mode=False)
    assert told.exception is None
    return told.return_value, told.output


def test_the_command_shows_the_page_of_a_real_journal(tmp_path):
    code, out = asked(a_run(tmp_path))
    assert code == 0
    assert out.startswith("demo: plan 8f3a1c. Waiting for approval.\n")
    assert "Swap: n002 takes slot 1 of n001: TP, PP and DP groups as before but for that one place.\n" in out
    assert "To redo: 8 iterations, 64 samples.\n" in out
    assert "No controller is alive: what you answer waits for the next one." in out


def test_the_command_tells_programs_the_same(tmp_path):
    code, out = asked(a_run(tmp_path), "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["schema"], told["controller_alive"]) == (1, False)
    assert told["plan"]["digest"] == told["page"]["digest"] == DIGEST[:16]
    assert told["plan"]["slots"] == ["n000", "n002"]
    assert (told["page"]["redo_samples"], told["page"]["groups_same"]) == (64, True)


def test_the_command_without_a_plan_is_not_yet(tmp_path):
    run = a_run(tmp_path, planned=False)
    code, out = asked(run)
    assert (code, out) == (3, "No plan is open. See: relight status demo\n")
    told = json.loads(asked(run, "--json")[1])
    assert (told["plan"], told["page"]) == (None, None)


def test_a_plan_that_is_held_says_how_it_is_lifted():
    history, known = waiting()
    text = plan_text(replace(history, paused=True), known)
    assert "Held: an approved plan is carried out after relight resume llm500b\n" in text
    assert "Hold:" not in text
    assert "nothing is carried out until a person resumes it" in text
