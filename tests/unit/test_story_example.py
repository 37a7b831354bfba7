"""The 10:40 story from a History built by hand: what `relight explain` prints, and what the README shows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from policies.facts import CheckpointPhase, CheckpointState, Counters, FaultClass, Finding, Rejected, Replay
from policies.history import Attempt, Bar, Books, Diagnosis, History, Incident, Times, Trouble
from policies.layout import Layout
from policies.reasons import Reason
from supervisor.telling.story import Known, incident_story

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- example: begin -->\n```text\n", "```\n<!-- example: end -->"
CST = timezone(timedelta(hours=8), "CST")
LOADED = Counters(step=41200, samples=3_380_838_400, updates=41198, skipped=2, lr=1.42e-4)
DIGEST = "8f3a1c" + "0" * 58


def at(clock: str, day: int = 10) -> float:
    """Wall seconds of a time of day in CST; day 10 of the run is 2026-06-10."""
    hour, minute, second = map(int, clock.split(":"))
    return datetime(2026, 6, day, hour, minute, second, tzinfo=CST).timestamp()


def nodes(count: int = 640) -> tuple[str, ...]:
    return tuple(f"n{i:04d}" for i in range(count))


def ten_forty() -> tuple[History, Known]:
    """One server drops at 10:40; a person approves; all is accounted for by 11:39."""
    before = nodes()
    after = tuple("n0643" if n == "n0417" else n for n in before)
    trouble = Trouble(
        fault=FaultClass.STALL,
        reason=Reason.STALL,
        at=at("10:40:18"),
        attempt=12,
        died=False,
        text="5,120 ranks stand in the phase step. No step for 11.2 s (limit 10.5 s): a stall.",
    )
    first = Finding(
        attempt=12,
        kind="xid",
        role="root",
        category="hardware.gpu",
        text="NVRM: Xid 79, GPU has fallen off the bus.",
        rank=3338,
        node="n0417",
        wall=at("10:40:05"),
        offset_bound=0.02,
    )
    incident = Incident(
        number=12,
        attempt=12,
        trouble=trouble,
        times=Times(
            last_good=at("10:40:07"),
            detected=at("10:40:18"),
            evidence=at("10:40:21"),
            decided=at("10:40:22"),
            approved=at("10:52:30"),
            stopped=at("10:52:32"),
            relaunched=at("10:53:10"),
            loaded=at("10:59:10"),
            next_good=at("10:59:55"),
            caught_up=at("11:39:40"),
        ),
        frontier=41268,
        frontier_samples=3_386_409_600,
        diagnosis=Diagnosis(
            first=(first,),
            suspects=("n0417",),
            category="hardware.gpu",
            confidence=0.95,
            cascade="NCCL timeouts on 5,112 ranks.",
        ),
        checkpoint="a0012-i0041200",
        checkpoint_step=41200,
        checkpoint_samples=3_380_838_400,
        rejected=(Rejected("a0012-i0041260", "still being written (512 of 5,120 files)."),),
        barred=("n0417",),
        swaps=((417, "n0417", "n0643"),),
        approved_by="li.wei",
        evidence="640 stacks, 214 log excerpts, node states.",
        replay=Replay(compared=68, differing=0, worst=0.0, first_differing=None, data_differing=None),
        closed=True,
    )
    old = Attempt(12, before, "a0011-i0038900", 38900, at("03:00:00", 9), 11, accepted_at=at("03:10:00", 9))
    new = Attempt(13, after, "a0012-i0041200", 41200, at("10:52:33"), 12, accepted_at=at("10:59:55"), began=LOADED)
    history = History(
        run="llm500b",
        epoch=3,
        mode="approve",
        started_at=at("06:00:00", 1),
        attempts=(replace(old, closed_at=at("10:52:32"), last_step=41268), new),
        incidents=(incident,),
        bars=(Bar("n0417", at("10:52:33"), 12, Reason.STALL),),
        books=Books(computed=41_334, rolled_back=68, skipped=2, samples_read_again=5_571_200),
        plans=((12, DIGEST),),
    )
    saves = (
        CheckpointState(
            "a0012-i0041200", 12, 41200, CheckpointPhase.COMPLETED, at("10:00:00"), at("10:07:41"), manifest_hash="ab"
        ),
    )
    known = Known(
        zone=CST,
        layout=Layout(tp=8, pp=8, dp=80, ranks_per_node=8),
        checkpoints=saves,
    )
    return history, known


GOLDEN = """\
Incident 12, day 10 (2026-06-10, CST). Closed after 19 min 48 s; caught up at 11:39:40.
10:40:05  n0417, rank 3338: NVRM: Xid 79, GPU has fallen off the bus.  [earliest error]
10:40:07  Last good update: iteration 41,268.
10:40:18  5,120 ranks stand in the phase step. No step for 11.2 s (limit 10.5 s): a stall.  [stall]
          Suspect: n0417 (category hardware.gpu, confidence 0.95).
          NCCL timeouts on 5,112 ranks.  [cascade]
10:40:21  Evidence kept: 640 stacks, 214 log excerpts, node states.
10:40:22  Way back: iteration 41,200 (a0012-i0041200), saved 10:00:00, completed 10:07:41.
          Rejected: a0012-i0041260, still being written (512 of 5,120 files).
10:40:22  Plan 8f3a1c. Approved 10:52:30 by li.wei (waited 12 min 8 s).
10:52:32  Attempt 12 is down.
10:52:33  n0417 barred.
10:52:33  n0643 takes slot 417 of n0417: TP, PP and DP groups as before but for that one place.
10:53:10  Attempt 13 launched.
10:59:10  Loaded. Samples 3,380,838,400, updates 41,198, skipped 2, learning rate 0.000142. Places, digests, counters and next samples: as in the manifest.
10:59:55  First update, iteration 41,201.  [closed]
11:39:40  Old frontier passed (iteration 41,268). 68 losses laid over the first pass: all equal.
Cost: 68 iterations to redo, 5.6 M samples read again, 5,120 ranks x 19 min 48 s down and 39 min 45 s of recomputation.
Where the time went: noticing 0:11, keeping the evidence 0:03, waiting for approval 12:08, stop and launch 0:41, loading 6:00, first update 0:45, recomputation 39:45.
"""


def test_the_story_of_ten_forty():
    history, known = ten_forty()
    assert incident_story(history, 12, known) == GOLDEN


def test_the_readme_shows_what_the_code_prints():
    history, known = ten_forty()
    text = README.read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == incident_story(history, 12, known)


def test_a_changed_fact_changes_the_story():
    # The golden text is no constant: plant another checkpoint and the story tells of it.
    history, known = ten_forty()
    other = replace(history.incidents[0], checkpoint="a0012-i0041100", checkpoint_step=41100)
    told = incident_story(replace(history, incidents=(other,)), 12, known)
    assert "41,100" in told
    assert "168 iterations to redo" in told


def test_times_are_told_in_the_zone_that_is_asked_for():
    history, known = ten_forty()
    told = incident_story(history, 12, replace(known, zone=UTC))
    assert "02:40:05  n0417" in told
    assert "(2026-06-10, UTC)" in told
