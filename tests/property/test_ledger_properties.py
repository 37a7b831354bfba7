"""computed = lineage + rolled back, for every history; the parts of the time add up; ETTR is a share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import isclose

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.facts import Counters, FaultClass
from policies.history import Books, Incident, Times, Trouble
from policies.ledger import close_attempt, effective_share, lineage, roll_back, split
from policies.reasons import Reason

REPEATABLE = settings(derandomize=True, max_examples=300, deadline=None)


@dataclass
class Run:
    """The run itself, step by step: `done` is what the weights descend from; True is an update, False a skip."""

    done: list[bool] = field(default_factory=list)
    computed: int = 0
    lost: int = 0
    skipped: int = 0
    read_again: int = 0

    @property
    def counters(self) -> Counters:
        updates = sum(self.done)
        return Counters(len(self.done), 4 * len(self.done), updates, len(self.done) - updates, None)

    def step(self, *, update: bool) -> None:
        self.done.append(update)
        self.computed += update
        self.skipped += not update

    def back_to(self, step: int) -> None:
        self.lost += sum(self.done[step:])
        self.read_again += 4 * len(self.done[step:])
        del self.done[step:]


@REPEATABLE
@given(st.lists(st.tuples(st.lists(st.booleans(), max_size=8), st.integers(0, 100)), max_size=8))
def test_the_books_agree_with_a_run_that_is_simply_done(attempts: list[tuple[list[bool], int]]) -> None:
    run, books = Run(), Books()
    for steps, where in attempts:
        began = run.counters
        for update in steps:
            run.step(update=update)
        ended = run.counters
        books = close_attempt(books, began, ended)
        run.back_to(where * len(run.done) // 100)
        books = roll_back(books, ended, run.counters)
        assert lineage(books) == run.counters.updates
        assert books == Books(run.computed, run.lost, run.skipped, run.read_again)


moments = st.one_of(st.none(), st.integers(0, 1000).map(float))
some_times = st.builds(Times, *([moments] * len(fields(Times))))
some_spans = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(0, 2000)).map(lambda pair: (min(pair), max(pair))), max_size=3
)


@REPEATABLE
@given(some_times)
def test_the_parts_add_up_to_the_whole(times: Times) -> None:
    parts = split(replace(times, stopped=None))
    assert parts == split(times)
    known = [getattr(times, f.name) for f in fields(Times) if f.name != "stopped"]
    known = [at for at in known if at is not None]
    assert all(getattr(parts, f.name) >= 0 for f in fields(parts))
    assert parts.total == (max(known) - known[0] if known else 0)


@settings(REPEATABLE, max_examples=100)
@given(st.lists(some_times, max_size=5), st.integers(0, 1000), st.integers(1, 1000), some_spans)
def test_the_effective_share_is_what_a_second_by_second_count_gives(
    many: list[Times], began: int, length: int, stood: list[tuple[int, int]]
) -> None:
    trouble = Trouble(FaultClass.STALL, Reason.STALL, 500.0, 1, died=False, text="")
    incidents = [Incident(n, n, trouble, times, 0, 0) for n, times in enumerate(many)]

    def start(one: Incident) -> float:
        return one.times.last_good if one.times.last_good is not None else one.trouble.at

    ended = began + length
    lost = set()
    ordered = sorted(incidents, key=start)
    for n, one in enumerate(ordered):
        until = one.times.caught_up
        if until is None:
            until = start(ordered[n + 1]) if n + 1 < len(ordered) else ended
        lost.update(range(max(began, int(start(one))), min(ended, int(until))))
    for first, end in stood:
        lost.update(range(max(began, first), min(ended, end)))
    share = effective_share(tuple(incidents), began, ended, tuple(stood))
    assert isclose(share, 1 - len(lost) / length, abs_tol=1e-9)
