"""How often to save: the figures of the reference run, published ones, and what the command makes of bad input."""

from __future__ import annotations

import json
from math import inf, nan

import pytest
from click.testing import CliRunner, Result

from policies import interval
from supervisor.commands.interval import command

MIN, HOUR, DAY, TB = 60.0, 3600.0, 86_400.0, 1e12
C, M = 3 * MIN, 24 * HOUR


def test_the_reference_run_saves_every_93_minutes() -> None:
    assert round(interval.young(C, M) / MIN) == 93


@pytest.mark.parametrize(("minutes", "percent"), [(30, 11.04), (60, 7.08), (90, 6.46), (120, 6.67)])
def test_the_losses_of_the_reference_run(minutes: int, percent: float) -> None:
    lost = interval.loss(minutes * MIN, C, M)
    assert round(100 * lost.total, 2) == percent
    assert lost.save == pytest.approx(3 / minutes)


def test_seven_terabytes_an_hour_are_168_a_day() -> None:
    assert interval.write_per_day(7 * TB, HOUR) == pytest.approx(168 * TB)


@pytest.mark.parametrize(("mtbf", "minutes"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MIN, 9.1)])
def test_daly_agrees_with_the_figures_of_his_paper(mtbf: float, minutes: float) -> None:
    """Figures 3 to 5 of FGCS 22 (2006) 303: saves of 5 min; the optimum to the digits printed there."""
    found = interval.daly(5 * MIN, mtbf) / MIN
    assert found == pytest.approx(minutes, abs=0.05 if minutes < 10 else 0.5)


def test_daly_saves_once_a_rollback_when_saves_are_longer_than_that() -> None:
    assert interval.daly(2 * HOUR, HOUR) == HOUR
    assert interval.daly(3 * HOUR, HOUR) == HOUR


def test_a_save_that_completes_late_costs_that_much_more() -> None:
    late = interval.loss(HOUR, C, M, completion_s=8 * MIN)
    assert late.redo - interval.loss(HOUR, C, M).redo == pytest.approx(8 / (24 * 60))


@pytest.mark.parametrize("bad", [0.0, -1.0, inf, nan])
def test_what_makes_no_sense_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"C = .* must be a positive number"):
        interval.young(bad, M)
    with pytest.raises(ValueError, match=r"M = .* must be a positive number"):
        interval.daly(C, bad)
    with pytest.raises(ValueError, match=r"T = .* must be a positive number"):
        interval.loss(bad, C, M)
    with pytest.raises(ValueError, match=r"size = .* must be a positive number"):
        interval.write_per_day(bad, HOUR)
    if bad != 0:
        with pytest.raises(ValueError, match=r"completion delay = .* must not be negative"):
            interval.loss(HOUR, C, M, bad)


def test_the_table_holds_the_candidates_and_the_optimum() -> None:
    rows = interval.table(C, M, candidates_s=(2 * HOUR, HOUR))
    assert [row.interval_s for row in rows] == [HOUR, interval.young(C, M), 2 * HOUR]
    assert all(row.bytes_per_day is None for row in rows)
    assert interval.table(C, M, 7 * TB, candidates_s=(HOUR,))[0].bytes_per_day == pytest.approx(168 * TB)


# --- the command ---------------------------------------------------------------------------------------------------


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_the_command_prints_the_table() -> None:
    result = run("--save-cost", "3m", "--mtbf", "24h", "--size", "7TB")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("Least loss: a save every 93 min (sqrt(2CM)); 91 min by Daly")
    assert lines[3].split() == ["60", "min", "5.00%", "2.08%", "7.08%", "168", "TB"]
    assert len(lines) == 2 + 5


def test_small_runs_are_shown_in_small_units() -> None:
    result = run("--save-cost", "1s", "--mtbf", "9m", "--size", "10MB", "--every", "30s", "--every", "0.5h")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[2].split() == ["30", "s", "3.33%", "2.78%", "6.11%", "28.8", "GB"]
    assert [line.split()[:2] for line in lines[3:]] == [["33", "s"], ["30", "min"]]


def test_amounts_beyond_the_last_unit_stay_readable() -> None:
    result = run("--save-cost", "3m", "--mtbf", "24h", "--size", "7TB", "--every", "1m")
    assert result.output.splitlines()[2].endswith("10,080 TB")


def test_without_a_size_nothing_is_said_of_writing() -> None:
    assert "written" not in run("--save-cost", "3m", "--mtbf", "24h").output


def test_machine_readable() -> None:
    words = ("--save-cost", "3m", "--mtbf", "1d", "--completion-delay", "8min", "--every", "1h", "--json")
    found = json.loads(run(*words).output)
    assert found["schema"] == 1
    assert found["young_s"] == pytest.approx(interval.young(C, M))
    assert found["daly_s"] == pytest.approx(interval.daly(C, M))
    assert found["rows"][0] == {
        "interval_s": 3600.0,
        "save_share": pytest.approx(0.05),
        "redo_share": pytest.approx(38 / 1440),
        "total_share": pytest.approx(0.05 + 38 / 1440),
        "bytes_per_day": None,
    }


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("3m", 180), ("3min", 180), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172_800)]
)
def test_durations(text: str, seconds: float) -> None:
    result = run("--save-cost", "1s", "--mtbf", "1h", "--every", text, "--json")
    assert seconds in [row["interval_s"] for row in json.loads(result.output)["rows"]]


@pytest.mark.parametrize(
    ("text", "size"),
    [("7TB", 7e12), ("7 TB", 7e12), ("6.5TiB", 6.5 * 2**40), ("512B", 512), ("3kB", 3e3), ("1KiB", 1024)],
)
def test_sizes(text: str, size: float) -> None:
    result = run("--save-cost", "1s", "--mtbf", "1h", "--size", text, "--every", "1d", "--json")
    assert json.loads(result.output)["rows"][-1]["bytes_per_day"] == pytest.approx(size)


@pytest.mark.parametrize("text", ["3", "3x", "h", "-3m", "3m ", "1e3s", "", "nan", "3m,4s", "9" * 500 + "s"])
def test_a_bad_duration_is_one_clear_line(text: str) -> None:
    result = run("--mtbf", "24h", f"--save-cost={text}")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert "is no duration; write 90s, 3m, 24h, 2d or 1h30m" in last
    assert len(last) < 200


@pytest.mark.parametrize("text", ["7", "7XB", "7tb", "TB", "-7TB", "7KB", "9" * 500 + "B"])
def test_a_bad_size_is_one_clear_line(text: str) -> None:
    result = run("--mtbf", "24h", "--save-cost", "3m", f"--size={text}")
    assert result.exit_code == 2
    assert "is no size; write 7TB, 800GB or 6.5TiB" in result.stderr.splitlines()[-1]


def test_nothing_is_divided_by_zero() -> None:
    for words in (("--save-cost", "0s", "--mtbf", "1h"), ("--save-cost", "1s", "--mtbf", "1h", "--every", "0s")):
        result = run(*words)
        assert result.exit_code == 2
        assert "must be a positive number" in result.stderr.splitlines()[-1]


def test_help_shows_examples() -> None:
    assert "  relight interval --save-cost 3m --mtbf 24h\n" in run("--help").output
