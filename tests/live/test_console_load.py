"""The bench that floods the console, small: what it measures is there, and a load that is none is found out."""

import pytest

from supervisor.bench.crowd import load

pytestmark = pytest.mark.real


def test_no_report_is_lost_while_the_console_is_flooded(tmp_path):
    turn, lost, answers = load.figures(str(tmp_path), lambda _: None, window_s=2.0, slots=8)
    assert lost.value == 0
    assert lost.beside["sent"] >= 2
    assert turn.beside["turns"] > 4
    assert answers.beside["401"] > load.VIEWERS


def test_a_load_that_is_none_is_found_out():
    with pytest.raises(RuntimeError, match="no bad request"):
        load.require_calls({"got": {"200": 5}, "events": 3})
    with pytest.raises(RuntimeError, match="no page"):
        load.require_calls({"got": {"200": 5, "401": 9}, "events": 0})


def test_rows_that_were_not_heard_are_counted():
    turns = [[1.0, 0.01], [2.0, 0.02], [11.0, 0.05]]
    turn, lost, _ = load.told(turns, (0.0, 5.0), (10.0, 15.0), {"rows": 7, "beats": 9}, 5, {"got": {}, "events": 0})
    assert lost.value == 2
    assert not lost.good
    assert turn.value == pytest.approx(2.5)
    assert not turn.good
