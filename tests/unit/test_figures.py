"""The figures judge what was measured: each limit is seen to fail on a planted excess, and no contest counts that was another."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policies.history import History
from supervisor.bench import costs, figures, slurm_launch
from supervisor.bench.long_run import LAYOUT, long_run
from supervisor.bench.rivals.contest import Mark, Sample, measure, read_marks
from supervisor.bench.slurm_launch import Launch
from supervisor.commands.bench import figures as figures_command
from supervisor.errors import UserError
from supervisor.fold import fold_all
from supervisor.journal.entries import Stamped

BARE = Sample(0.10, 0.20, 10.0, 10.5)
GOOD = {
    "bare": [BARE],
    "cold": [Sample(0.30, 0.40, 10.4, 10.9, {"confirmed": 0.01, "relaunched": 0.2})],
    "warm": [Sample(0.30, 0.40, 1.5, 2.0, {"confirmed": 0.01})],
    "torchrun": [Sample(0.35, 0.45, 10.2, 10.8)],
}
CHEAP = {
    "call_p50_us": 10.0, "call_p99_us": 50.0, "dropped": 0.0, "cpu_share": 0.05, "agents": 640.0, "rss_mb": 40.0,
    "help_s": 0.05, "python_s": 0.01, "recovery_s": 0.5, "entries": 20_000.0, "size_mb": 5.0, "append_p50_ms": 0.2,
    "append_p99_ms": 0.4, "view_ms": 0.4, "tick_calm_ms": 0.5, "tick_acceptance_ms": 30.0, "tick_cascade_ms": 1.0,
    "seal_mb_s": 9000.0, "read_mb_s": 11_000.0,
}  # fmt: skip


def missed(found: list[figures.Figure]) -> list[str]:
    return [figure.name for figure in found if not figure.good]


def test_a_good_day_misses_nothing_and_tells_the_rivals():
    found = [*figures.of_contests(GOOD), *figures.of_costs(CHEAP)]
    assert missed(found) == []
    first = found[0]
    assert first.value == pytest.approx(0.2)
    assert first.beside == {"bare s": 0.10, "cold s": 0.30, "warm s": 0.30, "torchrun s": 0.35}
    told = figures.report(found, GOOD, 0.5)
    assert told["ok"] is True
    assert json.loads(json.dumps(told))["figures"][0]["good"] is True


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("cold", Sample(0.36, 0.40, 10.4, 10.9)),
        ("cold", Sample(0.30, 0.46, 10.4, 10.9)),
        ("cold", Sample(0.30, 0.40, 11.6, 10.9)),
        ("cold", Sample(0.30, 0.40, 10.4, 12.2)),
        ("warm", Sample(0.30, 0.40, 3.1, 2.0)),
        ("warm", Sample(0.30, 0.40, 1.5, 3.2)),
    ],
)
def test_each_limit_of_a_contest_is_seen_to_be_missed(name: str, slow: Sample):
    found = figures.of_contests({**GOOD, name: [slow]})
    assert len(missed(found)) == 1
    assert figures.report(found, {}, 0.5)["ok"] is False
    assert [row[-1] for row in figures.rows(found)].count("MISSED") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("call_p50_us", 21.0),
        ("call_p99_us", 101.0),
        ("cpu_share", 0.11),
        ("rss_mb", 121.0),
        ("help_s", 0.21),
        ("recovery_s", 2.1),
        ("view_ms", 2.1),
        ("view_ms", math.nan),
    ],
)
def test_each_limit_of_a_cost_is_seen_to_be_missed(key: str, value: float):
    assert len(missed(figures.of_costs({**CHEAP, key: value}))) == 1


def test_a_least_speed_is_missed_from_below_and_what_was_skipped_is_kept():
    found = [figures.Figure("speed", value, "x", 1.0, least=True) for value in (1.0, 0.99, math.nan)]
    assert [one.good for one in found] == [True, False, False]
    assert [row[2:] for row in figures.rows(found)] == [
        (">= 1 x", "", "ok"),
        (">= 1 x", "", "MISSED"),
        (">= 1 x", "", "MISSED"),
    ]
    assert figures.rows(found)[2][1] == "not told x"
    told = figures.report(found[:1], {}, 0.5, ["a rival is not there"])
    assert (told["ok"], told["skipped"]) == (True, ["a rival is not there"])


def test_every_part_can_be_chosen():
    (part,) = (one for one in figures_command.params if one.name == "parts")
    assert tuple(part.type.choices) == figures.PARTS


def test_the_middle_of_the_repeats_counts():
    middle = figures.medians([BARE, Sample(0.5, 0.9, 30.0, 31.0, {"a": 1.0}), Sample(0.3, 0.1, 20.0, 12.0)])
    assert middle == Sample(0.3, 0.2, 20.0, 12.0)


def marks(first_step: int) -> list[Mark]:
    """Two ranks that die at 100 s after step 13, and come back."""
    old = [Mark(90.0, 0, 10, None), Mark(90.0, 1, 11, None), Mark(99.9, 1, 11, 13)]
    late = Mark(100.05, 1, 11, 14)  # said by a rank of before, which still lived
    new = [Mark(100.2, 1, 21, None), Mark(100.4, 0, 20, None)]
    return [*old, late, *new, *(Mark(105.0 + step, 1, 21, step) for step in range(first_step, 15))]


def test_times_run_from_the_death_to_new_ranks_and_new_steps():
    found = measure(marks(11), 100.0, 2)
    assert found is not None
    assert found.first_statement == pytest.approx(0.2)
    assert found.all_begun == pytest.approx(0.4)
    assert found.next_step == pytest.approx(16.0)
    assert found.new_step == pytest.approx(19.0)
    assert measure(marks(11)[:-1], 100.0, 2) is None  # not past the old frontier yet
    assert measure(marks(11), 100.0, 3) is None  # a third rank has not begun


def test_a_rival_that_went_on_from_elsewhere_has_not_done_the_same_job():
    with pytest.raises(UserError, match="first step after the restart is 1, not 11"):
        measure(marks(1), 100.0, 2)


def test_marks_are_those_of_the_trainer(tmp_path: Path):
    path = tmp_path / "marks.jsonl"
    path.write_bytes(b'{"t": 1.5, "rank": 3, "pid": 9, "step": null}\n{"t": 2.5, "ra')
    assert read_marks(str(path)) == [Mark(1.5, 3, 9, None)]
    assert read_marks(str(tmp_path / "none")) == []


def test_a_bare_restart_kills_the_rest_and_starts_all_again(tmp_path: Path):
    """Each rank says its number and waits for a word; one that is killed brings all of them back."""
    pipe, where = tmp_path / "said", tmp_path / "go"
    os.mkfifo(pipe)
    rank = (
        "import os, sys; f = os.open(sys.argv[1], os.O_WRONLY)\n"
        "os.write(f, f\"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {os.getpid()}\\n\".encode())\n"
        "os.path.exists(sys.argv[2]) or os.read(os.open(sys.argv[3], os.O_RDWR), 1)"
    )
    never = tmp_path / "never"
    os.mkfifo(never)
    said = os.open(pipe, os.O_RDWR)
    bare = [sys.executable, "-m", "supervisor.bench.rivals.bare", "2", str(tmp_path), "--"]
    with subprocess.Popen([*bare, sys.executable, "-c", rank, str(pipe), str(where), str(never)]) as driver:
        try:
            first = heard(said, 2)
            assert {(r, w) for r, w, _ in first} == {("0", "2"), ("1", "2")}
            where.write_bytes(b"")
            os.kill(int(first[0][2]), signal.SIGKILL)
            second = heard(said, 2)
            assert not {pid for *_, pid in second} & {pid for *_, pid in first}
            assert driver.wait(30) == 0
            assert not any(os.path.exists(f"/proc/{pid}") for *_, pid in first)
        finally:
            driver.kill()
            os.close(said)


def heard(said: int, lines: int) -> list[tuple[str, str, str]]:
    text = b""
    until = time.monotonic() + 30
    while text.count(b"\n") < lines:
        assert select.select([said], [], [], max(0.0, until - time.monotonic()))[0], "nothing was said"
        text += os.read(said, 4096)
    return [tuple(line.split()) for line in text.decode().splitlines()]  # type: ignore[misc]


def test_a_long_run_is_what_the_fold_understands():
    history = fold_all(History(), (Stamped(i, 1, float(i), entry) for i, entry in enumerate(long_run(5000))))
    assert len(history.attempts) > 20
    assert len(history.intents) <= 1  # the cut may fall between an intent and its settlement
    assert all(i.closed for i in history.incidents[:-1])
    assert len(history.attempts[0].slots) * LAYOUT.ranks_per_node == LAYOUT.world


def test_costs_are_measured(tmp_path: Path):
    told = costs.measure_journal(str(tmp_path / "journal"), 2000, singles=5) | costs.measure_ticks(2500, 1)
    told |= costs.measure_seal(str(tmp_path / "seal"), 8, 2, 1) | costs.measure_help(1)
    assert told["entries"] == 2000
    assert all(value > 0 for value in told.values())
    assert os.listdir(tmp_path / "seal") == []


QUICK = Launch(0.3, {"confirmed s": 0.01, "relaunched s": 0.1}, 0.25)


def test_launches_under_slurm_are_judged_beside_a_bare_srun():
    good = slurm_launch.of_launches(8, [QUICK, QUICK, Launch(9.0, QUICK.stages, 1.0)], slurm_launch.LAUNCH_SHARE)
    assert (good.value, missed([good])) == (pytest.approx(1.2), [])
    assert good.beside["bare srun s"] == 0.25
    slow = Launch(0.7, QUICK.stages, 0.25)
    assert missed([slurm_launch.of_launches(8, [slow, slow, QUICK], slurm_launch.LAUNCH_SHARE)])
    assert not missed([slurm_launch.of_launches(64, [slow], None)])


def test_a_warm_start_and_a_lost_node_have_their_limits():
    cold = Launch(4.0, {})
    assert not missed([slurm_launch.of_warm(cold, Launch(1.1, {})), slurm_launch.of_fault("a crashed node", 4.9, 60.0)])
    assert missed([slurm_launch.of_warm(cold, Launch(1.3, {}))])
    assert missed([slurm_launch.of_fault("a crashed node", 5.1, 60.0)])
