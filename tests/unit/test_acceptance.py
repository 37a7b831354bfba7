"""Is the run really back? Each fault is planted alone, and must be the one that is named."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from policies.acceptance import FAULTS_SHOWN, Verdict, judge
from policies.facts import AttemptView, Batch, Counters, Expected, Loaded, Place, RankExit, StepRow
from policies.layout import Layout

LAYOUT = Layout(tp=2, pp=1, dp=2, ranks_per_node=2)
SLOTS = ("n0", "n7")
AT_40 = Counters(step=40, samples=320, updates=39, skipped=1, lr=1e-3)
AT_ZERO = Counters(step=0, samples=0, updates=0, skipped=0, lr=1e-4)
ID = "a0002-i0000040"


def batch(rank: int) -> Batch:
    return Batch(first=320 + 4 * (rank // 2), count=4, hash=f"h{rank // 2}")


MANIFEST = Expected(ID, AT_40, {r: f"d{r}" for r in range(4)}, {r: batch(r) for r in range(4)})
ROW = StepRow(3, 41, 328, 40, 1, loss=2.5, lr=1e-3, grad_norm=1.0, seconds=0.1, at=50.0, batch=batch(3))


def loaded(rank: int, **more: object) -> Loaded:
    good = Loaded(rank, SLOTS[rank // 2], 3, LAYOUT.place(rank), ID, AT_40, f"d{rank}", batch(rank))
    return replace(good, **more)  # type: ignore[arg-type]


def view(*changed: Loaded, row: StepRow | None = ROW, **more: object) -> AttemptView:
    reports = {rank: loaded(rank) for rank in range(4)} | {one.rank: one for one in changed}
    return replace(AttemptView(3, running=True, loaded=reports, first_step=row), **more)  # type: ignore[arg-type]


def verdict(attempt: AttemptView, expected: Expected | None = MANIFEST) -> Verdict:
    return judge(LAYOUT, SLOTS, attempt, expected, from_nothing=False)


def test_everything_right_passes() -> None:
    assert verdict(view()) == Verdict("passed", 0)


def test_pending_until_every_rank_has_reported() -> None:
    attempt = view()
    some = replace(attempt, loaded={r: one for r, one in attempt.loaded.items() if r != 2})
    assert verdict(some) == Verdict("pending", 1)
    assert verdict(AttemptView(3, running=True)) == Verdict("pending", 4)


def test_pending_until_the_first_update() -> None:
    assert verdict(view(row=None)) == Verdict("pending", 0)
    skipped = replace(ROW, updates=39, skipped=2)
    assert verdict(view(row=skipped)) == Verdict("pending", 0)
    updated = replace(ROW, step=42, updates=40, skipped=2)
    assert verdict(view(row=skipped, last_step=updated)) == Verdict("passed", 0)


def test_pending_while_the_manifest_is_not_read() -> None:
    assert verdict(view(), None) == Verdict("pending", 0)
    wrong_node = verdict(view(loaded(2, node="n1")), None)
    assert wrong_node.state == "failed"


def test_a_rank_that_ended_badly_keeps_it_pending() -> None:
    """The way it ended is a fault of its own; it is never back, and never an acceptance fault."""
    ended = RankExit(1, "n0", 3, 55.0, signal=9)
    assert verdict(view(exits=(ended,))) == Verdict("pending", 0)
    assert verdict(view(exits=(replace(ended, signal=None, code=0),))) == Verdict("passed", 0)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"node": "n1"}, "rank 2 runs on n1; its slot 1 is on n7"),
        ({"place": Place(1, 0, 1)}, "rank 2 takes itself for TP 1 PP 0 DP 1; its place is TP 0 PP 0 DP 1"),
        ({"place": None}, "rank 2 takes itself for no place; its place is TP 0 PP 0 DP 1"),
        ({"attempt": 2}, "rank 2 reports for attempt 2; this is attempt 3"),
        ({"checkpoint": "a0001-i0000020"}, f"rank 2 loaded a0001-i0000020; the plan says {ID}"),
        ({"checkpoint": ""}, f"rank 2 loaded nothing; the plan says {ID}"),
        ({"counters": replace(AT_40, step=20)}, "rank 2 has step 20; it should be 40"),
        ({"counters": replace(AT_40, samples=0)}, "rank 2 has samples 0; it should be 320"),
        ({"counters": replace(AT_40, updates=40)}, "rank 2 has updates 40; it should be 39"),
        ({"counters": replace(AT_40, skipped=0)}, "rank 2 has skipped 0; it should be 1"),
        ({"counters": replace(AT_40, lr=2e-3)}, "rank 2 has learning rate 0.002; it should be 0.001"),
        ({"counters": replace(AT_40, lr=None)}, "rank 2 has learning rate None; it should be 0.001"),
        ({"counters": None}, "rank 2 gave no counters"),
        ({"digest": "d3"}, "rank 2 has digest d3; the manifest has d2"),
        ({"digest": None}, "rank 2 gave no digest"),
        (
            {"next_batch": Batch(0, 4, "h")},
            "rank 2 has next samples 0 to 3 (hash h); the manifest has 324 to 327 (hash h1)",
        ),
        ({"next_batch": None}, "rank 2 gave no next samples"),
    ],
)
def test_a_fault_in_what_one_rank_loaded_is_named(planted: dict[str, object], fault: str) -> None:
    assert verdict(view(loaded(2, **planted))) == Verdict("failed", 0, (fault,))


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"attempt": 2}, "the first step is one of attempt 2; this is attempt 3"),
        ({"loss": nan}, "the loss of step 41 is nan"),
        ({"loss": inf}, "the loss of step 41 is inf"),
        ({"loss": None}, "the loss of step 41 was not reported"),
        ({"updates": 41}, "step 41 has 41 updates and 1 skipped; the checkpoint had 39 and 1 at step 40"),
        ({"updates": 39}, "step 41 has 39 updates and 1 skipped; the checkpoint had 39 and 1 at step 40"),
        (
            {"updates": 38, "skipped": 3},
            "step 41 has 38 updates and 3 skipped; the checkpoint had 39 and 1 at step 40",
        ),
        (
            {"updates": 41, "skipped": 0},
            "step 41 has 41 updates and 0 skipped; the checkpoint had 39 and 1 at step 40",
        ),
        ({"samples": 320}, "step 41 has read 320 samples; the checkpoint had read 320"),
        (
            {"batch": Batch(0, 4, "h0")},
            "step 41 read samples 0 to 3 (hash h0); the manifest has 320 to 327",
        ),
    ],
)
def test_a_fault_in_the_first_step_is_named(planted: dict[str, object], fault: str) -> None:
    assert verdict(view(row=replace(ROW, **planted))) == Verdict("failed", 0, (fault,))  # type: ignore[arg-type]


def test_a_first_step_from_elsewhere_is_named() -> None:
    later = replace(ROW, step=52, updates=51)
    assert verdict(view(row=later)).faults == ("the first step is 52; after checkpoint step 40 it should be 41",)


def test_a_step_whose_samples_are_not_told_may_pass() -> None:
    assert verdict(view(row=replace(ROW, batch=None))).state == "passed"


def test_a_fault_does_not_wait_for_the_rest() -> None:
    attempt = AttemptView(3, running=True, loaded={2: loaded(2, digest="other")})
    assert verdict(attempt) == Verdict("failed", 3, ("rank 2 has digest other; the manifest has d2",))


def test_a_rank_that_is_not_in_the_layout_is_named() -> None:
    fault = "rank 4 reported as rank 4; the layout has ranks 0..3"
    assert verdict(view(replace(loaded(3), rank=4))).faults == (fault,)
    attempt = view()
    swapped = replace(attempt, loaded={**attempt.loaded, 1: loaded(2)})
    assert verdict(swapped).faults == ("rank 2 reported as rank 1; the layout has ranks 0..3",)


def test_what_a_full_manifest_lacks_is_a_fault() -> None:
    holed = replace(MANIFEST, digests={0: "d0", 1: "d1", 2: "d2"}, next_batches={})
    assert "the manifest has no digest for rank 3" in verdict(view(), holed).faults
    assert "the manifest has no next samples for rank 0" in verdict(view(), holed).faults


def test_a_limited_manifest_passes_as_limited_and_what_it_holds_still_counts() -> None:
    limited = Expected(ID, None, {0: "d0"}, {}, limited=True)
    assert verdict(view(), limited) == Verdict("passed", 0, limited=True)
    wrong = verdict(view(loaded(0, digest="other")), limited)
    assert wrong.faults == ("rank 0 has digest other; the manifest has d0",)


def test_without_the_manifests_counters_the_odd_rank_out_is_named() -> None:
    limited = Expected(ID, None, limited=True)
    odd = verdict(view(loaded(0, counters=replace(AT_40, samples=312))), limited)
    assert odd.faults == ("rank 0 has samples 312; it should be 320",)
    none = verdict(view(*(loaded(r, counters=None) for r in range(4)), row=None), limited)
    assert none.faults[0] == "rank 0 gave no counters"


def test_many_faults_are_counted() -> None:
    many = view(*(loaded(r, digest="x", checkpoint="y", node="z") for r in range(4)))
    faults = verdict(many).faults
    assert len(faults) == FAULTS_SHOWN + 1
    assert faults[-1] == "and 4 more"
    eight = view(*(loaded(r, digest="x", node="z") for r in range(4)))
    assert len(verdict(eight).faults) == FAULTS_SHOWN


def from_nothing(*changed: Loaded, row: StepRow | None = None) -> Verdict:
    fresh = {"checkpoint": "", "counters": AT_ZERO, "digest": None}
    reports = [loaded(rank, **fresh) for rank in range(4)]
    attempt = view(*reports, *changed, row=row or replace(ROW, step=1, samples=8, updates=1, skipped=0))
    return judge(LAYOUT, SLOTS, attempt, None, from_nothing=True)


def test_a_start_from_nothing_passes_with_zero_counters() -> None:
    assert from_nothing() == Verdict("passed", 0)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"checkpoint": ID}, f"rank 2 loaded {ID}; the plan says nothing"),
        ({"node": "n0"}, "rank 2 runs on n0; its slot 1 is on n7"),
        ({"counters": replace(AT_ZERO, step=40)}, "rank 2 has step 40; it should be 0"),
        ({"counters": replace(AT_ZERO, lr=1e-3)}, "rank 2 has learning rate 0.001; it should be 0.0001"),
        ({"counters": None}, "rank 2 gave no counters"),
    ],
)
def test_a_fault_in_a_start_from_nothing_is_named(planted: dict[str, object], fault: str) -> None:
    base: dict[str, object] = {"checkpoint": "", "counters": AT_ZERO, "digest": None}
    assert from_nothing(loaded(2, **base | planted)) == Verdict("failed", 0, (fault,))


def test_a_start_from_nothing_that_began_elsewhere_is_named() -> None:
    assert from_nothing(row=ROW).faults[0] == "the first step is 41; after checkpoint step 0 it should be 1"


def test_a_start_from_nothing_waits_for_the_first_report() -> None:
    waiting = judge(LAYOUT, SLOTS, AttemptView(3, running=True), None, from_nothing=True)
    assert waiting == Verdict("pending", 4)


LOGGED = StepRow(3, 41, 0, 0, 0, loss=None, lr=None, grad_norm=None, seconds=0.0, at=50.0)


def log_lines_only(row: StepRow | None = LOGGED, exits: tuple[RankExit, ...] = ()) -> AttemptView:
    return AttemptView(3, running=True, first_step=row, exits=exits, limited=True)


def test_log_lines_alone_pass_as_limited() -> None:
    assert verdict(log_lines_only()) == Verdict("passed", 0, limited=True)
    bare = Expected(ID, None, limited=True)
    passed = judge(LAYOUT, SLOTS, log_lines_only(), bare, from_nothing=False, start_step=40)
    assert passed == Verdict("passed", 0, limited=True)
    fresh = judge(LAYOUT, SLOTS, log_lines_only(replace(LOGGED, step=1)), None, from_nothing=True)
    assert fresh == Verdict("passed", 0, limited=True)


def test_log_lines_that_do_not_suffice() -> None:
    assert verdict(log_lines_only(None)) == Verdict("pending", 0, limited=True)
    ended = RankExit(1, "n0", 3, 55.0, code=1)
    assert verdict(log_lines_only(exits=(ended,))) == Verdict("pending", 0, limited=True)
    unknown_step = verdict(log_lines_only(), Expected(ID, None, limited=True))
    assert unknown_step == Verdict("pending", 0, limited=True)


def test_log_lines_that_are_wrong_fail() -> None:
    wrong = verdict(log_lines_only(replace(LOGGED, step=21)))
    assert wrong.faults == ("the first step is 21; after checkpoint step 40 it should be 41",)
    assert verdict(log_lines_only(replace(LOGGED, loss=nan))).faults == ("the loss of step 41 is nan",)
