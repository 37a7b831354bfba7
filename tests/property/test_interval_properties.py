"""Young's interval is where the loss is least; Daly's stays near it; saving and redoing are equal there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx  # noqa: PT013 - one name

from policies.interval import daly, loss, table, write_per_day, young

REPEATABLE = settings(derandomize=True, max_examples=300, deadline=None)
saves = st.floats(0.01, 1e4)
mtbfs = st.floats(1.0, 1e7)


@REPEATABLE
@given(saves, mtbfs, st.floats(0.01, 100.0), st.floats(0, 1e4))
def test_no_other_interval_loses_less(save: float, mtbf: float, factor: float, delay: float) -> None:
    best = young(save, mtbf)
    assert loss(best, save, mtbf, delay).total <= loss(best * factor, save, mtbf, delay).total * (1 + 1e-12)
    at_best = loss(best, save, mtbf)
    assert at_best.save == approx(at_best.redo)


@REPEATABLE
@given(saves, mtbfs)
def test_daly_meets_young_where_saves_are_short(save: float, mtbf: float) -> None:
    if save >= 2 * mtbf:
        assert daly(save, mtbf) == mtbf
    else:
        # between the two lie C itself and the terms of higher order, which are below C/2
        assert abs(daly(save, mtbf) - young(save, mtbf)) <= save
        assert daly(save, mtbf) > 0


@REPEATABLE
@given(saves, mtbfs, st.floats(1.0, 1e15))
def test_a_table_is_in_order_and_writes_less_with_each_row(save: float, mtbf: float, size: float) -> None:
    rows = table(save, mtbf, size)
    assert [r.interval_s for r in rows] == sorted(r.interval_s for r in rows)
    assert [r.bytes_per_day for r in rows] == [write_per_day(size, r.interval_s) for r in rows]
    assert min(r.loss.total for r in rows) == approx(loss(young(save, mtbf), save, mtbf).total)
