"""No single fault planted in any rank's report gets by, at any shape; and good reports always pass."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.acceptance import judge
from policies.facts import AttemptView, Batch, Counters, Expected, Loaded, Place, StepRow
from policies.layout import Layout

REPEATABLE = settings(derandomize=True, max_examples=150, deadline=None)


@st.composite
def attempts(draw: st.DrawFn) -> tuple[Layout, tuple[str, ...], AttemptView, Expected]:
    tp, pp, dp = (draw(st.integers(1, 3)) for _ in range(3))
    layout = Layout(tp, pp, dp, ranks_per_node=tp)
    slots = tuple(f"n{i}" for i in range(layout.slots_needed))
    skipped = draw(st.integers(0, 5))
    step = draw(st.integers(skipped, 1000))
    counters = Counters(step, samples=step * 8, updates=step - skipped, skipped=skipped, lr=draw(st.floats(0, 1)))
    batches = {r: Batch(step * 8 + layout.place(r).dp, 1, f"h{r}") for r in range(layout.world)}
    digests = {r: f"d{r}" for r in range(layout.world)}
    expected = Expected("c", counters, digests, batches)
    loaded = {
        r: Loaded(r, slots[layout.slot_of(r)], 2, layout.place(r), "c", counters, digests[r], batches[r])
        for r in range(layout.world)
    }
    row = StepRow(2, step + 1, step * 8 + 8, step - skipped + 1, skipped, 1.0, 0.1, 1.0, 0.1, 1.0)
    return layout, slots, AttemptView(2, running=True, loaded=loaded, first_step=row), expected


FAULTS = {
    "node": lambda one: one.node + "x",
    "attempt": lambda one: one.attempt - 1,
    "place": lambda one: Place(one.place.tp, one.place.pp, one.place.dp + 1),
    "checkpoint": lambda one: one.checkpoint + "x",
    "counters": lambda one: replace(one.counters, samples=one.counters.samples + 1),
    "digest": lambda one: one.digest + "x",
    "next_batch": lambda one: replace(one.next_batch, hash="x"),
}


@REPEATABLE
@given(attempts(), st.sampled_from(sorted(FAULTS)), st.data())
def test_one_planted_fault_is_always_caught(case: tuple, field: str, data: st.DataObject) -> None:
    layout, slots, attempt, expected = case
    assert judge(layout, slots, attempt, expected, from_nothing=False).state == "passed"
    rank = data.draw(st.integers(0, layout.world - 1))
    one = attempt.loaded[rank]
    planted = replace(one, **{field: FAULTS[field](one)})
    verdict = judge(layout, slots, replace(attempt, loaded={**attempt.loaded, rank: planted}), expected, False)
    assert verdict.state == "failed"
    assert len(verdict.faults) == 1
    assert verdict.faults[0].startswith(f"rank {rank} ")


@REPEATABLE
@given(attempts(), st.data())
def test_a_missing_report_is_never_a_pass_or_a_fault(case: tuple, data: st.DataObject) -> None:
    layout, slots, attempt, expected = case
    gone = data.draw(st.sets(st.integers(0, layout.world - 1), min_size=1))
    there = {r: one for r, one in attempt.loaded.items() if r not in gone}
    verdict = judge(layout, slots, replace(attempt, loaded=there), expected, from_nothing=False)
    assert (verdict.state, verdict.missing) == ("pending", len(gone))
