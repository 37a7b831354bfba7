"""The made-up logs hold the answer that the bench expects, the figures are what was measured, and a rival that is slow, wrong or
not there is told as such."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest
from logcases import READER

from supervisor.bench import earliest, finding_delay, scanning
from supervisor.bench.logs import RANKS, Shape, make
from supervisor.bench.rivals import nvrx_analyser
from supervisor.bench.scanning import Race, Rivals, Runner, Speed
from supervisor.bench.timed import timed
from supervisor.errors import UserError
from supervisor.evidence.folder import as_json, diagnose_folder

MB = 1_000_000


def quiet(_text: str) -> None:
    pass


# --- the logs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "guilty"), [(4, 3338), (1, 17)])
def test_the_guilty_rank_among_5120(tmp_path, files, guilty):
    shape = Shape(4 * MB, files, 0.5, guilty)
    make(str(tmp_path), shape)
    got = as_json(diagnose_folder(str(tmp_path), reader=READER))
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (guilty, shape.node)
    assert f"{RANKS - 1} ranks" in got["cascade"]


def test_without_its_last_words_the_rank_is_found_by_its_silence(tmp_path):
    make(str(tmp_path), Shape(4 * MB, 4, 0.5))
    for path in tmp_path.iterdir():
        path.write_text(
            "".join(x for x in path.read_text().splitlines(keepends=True) if not x.startswith("[rank3338]"))
        )
    got = as_json(diagnose_folder(str(tmp_path), reader=READER))
    assert (got["category"], got["first_error"]["rank"], got["evidence"]) == ("hang.unknown", 3338, "inference")


@pytest.mark.parametrize(("share", "files"), [(0.2, 64), (0.002, 1)])
def test_logs_have_the_size_and_the_share_of_candidates_that_was_asked(tmp_path, share, files):
    made = make(str(tmp_path), Shape(4 * MB, files, share))
    assert made.bytes == sum(path.stat().st_size for path in tmp_path.iterdir()) == pytest.approx(4 * MB, rel=0.1)
    lines = [line for path in tmp_path.iterdir() for line in path.read_bytes().splitlines()]
    assert len(lines) == made.lines
    candidates = sum(b"Watchdog" in line or b"nRanks" in line or b"ECC" in line for line in lines)
    assert candidates / len(lines) == pytest.approx(share, rel=0.15)


# --- the races -------------------------------------------------------------------------------------------------------


def script(tmp_path: Path, name: str, body: str) -> Runner:
    """A tool of one's own: it gets the folder as its argument."""
    path = tmp_path / f"{name}.py"
    path.write_text(
        "import os, sys, time, json\nbig = sum(e.stat().st_size for e in os.scandir(sys.argv[1])) > 60_000\n" + body
    )
    return Runner(lambda folder: [sys.executable, "-S", str(path), folder], lambda said, _: said.strip() == "right")


BURN = "end = time.process_time() + {} * big\nwhile time.process_time() < end: pass\nprint('{}')\n"


def test_a_race_tells_who_was_slow(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    ours = script(tmp_path, "ours", BURN.format(0.05, "right"))
    slow = script(tmp_path, "slow", BURN.format(0.5, "wrong"))
    found = scanning.race(str(logs), "dense", Shape(200_000, 4, 0.2), "ripgrep", ours, slow, 1)
    assert found.theirs is not None
    assert found.theirs.cpu_s - found.theirs.start_cpu_s > found.ours.cpu_s - found.ours.start_cpu_s
    assert (found.ours.right, found.theirs.right) == (True, False)
    assert found.theirs.rate < found.ours.rate < 200_000 / MB / 0.04
    assert list(logs.iterdir()) == []  # the logs are gone again


def test_a_rival_that_is_not_there_or_fails_is_skipped_and_said(tmp_path):
    ours = script(tmp_path, "ours", BURN.format(0.0, "right"))
    broken = script(tmp_path, "broken", "sys.exit('no such engine' if big else 0)\n")
    said = []
    folder = tmp_path / "logs"
    folder.mkdir()
    races = scanning.measure(str(folder), 100_000, 90_000, 1, said.append, Rivals(ours, None, broken))
    assert [(race.what, race.rival) for race in races] == [
        ("rare", "ripgrep"), ("rare", "NVRx"), ("dense", "ripgrep"), ("dense", "NVRx"),
    ]  # fmt: skip
    figures, skipped = earliest.of_races(races)
    assert skipped[0] == "diagnose, 0.01% candidates: ripgrep is not compared: ripgrep is not installed"
    assert skipped[1] == "diagnose, 0.01% candidates: NVRx is not compared: NVRx ended with 1: no such engine"
    assert len(skipped) == 4
    assert not any("of ripgrep's" in one.name or "of NVRx's" in one.name for one in figures)
    assert sum("peak memory" in one.name for one in figures) == 2


def test_when_ours_fails_there_is_no_figure(tmp_path):
    broken = script(tmp_path, "broken", "sys.exit(3)\n")
    with pytest.raises(UserError, match="relight ended with 3"):
        scanning.measure(str(tmp_path), 50_000, 50_000, 1, quiet, Rivals(broken, None, None))


def test_the_product_itself_is_run_and_judged(tmp_path):
    found = scanning.race(
        str(tmp_path), "rare", Shape(200_000, 2, 0.2), "ripgrep", scanning.relight(), scanning.ripgrep(), 1
    )
    assert found.ours.right is True
    assert found.ours.peak_mb > 10
    assert (found.theirs is None) == bool(found.why)


def speed(rate: float, size: int = 400 * MB, peak: float = 50.0, right: bool | None = True) -> Speed:
    """So many MB a second, with a start of a tenth of a second."""
    taken = size / MB / rate
    return Speed(size, 0.1 + taken, 0.2 + taken, 0.1, 0.2, peak, right)


GOOD = [
    Race("rare", "ripgrep", 1, speed(800.0), speed(600.0)),
    Race("dense", "ripgrep", 1, speed(300.0), speed(600.0)),
    Race("rare", "NVRx", 1, speed(800.0, 200 * MB), speed(1.5, 200 * MB, 140.0)),
]


def missed(races: list[Race]) -> list[str]:
    return [one.name for one in earliest.of_races(races)[0] if not one.good]


def test_figures_are_what_was_measured():
    figures, skipped = earliest.of_races(GOOD)
    by_name = {one.name: one for one in figures}
    assert (missed(GOOD), skipped) == ([], [])
    assert by_name["diagnose, 0.01% candidates: speed of a core"].value == pytest.approx(800.0)
    assert by_name["diagnose, 0.01% candidates: of ripgrep's speed"].value == pytest.approx(800 / 600)
    assert by_name["diagnose, 20.00% candidates: of ripgrep's speed"].value == pytest.approx(0.5)
    of_nvrx = by_name["diagnose, 0.01% candidates: of NVRx's speed"]
    assert of_nvrx.value == pytest.approx((200 / 1.5 + 0.1) / (200 / 800 + 0.1))  # the whole commands
    assert of_nvrx.beside["NVRx peak MB"] == 140.0


@pytest.mark.parametrize(
    ("number", "race", "what"),
    [
        (0, Race("rare", "ripgrep", 1, speed(590.0), speed(600.0)), "of ripgrep's speed"),
        (0, Race("rare", "ripgrep", 1, speed(800.0, peak=151.0), speed(600.0)), "peak memory"),
        (0, Race("rare", "ripgrep", 1, speed(800.0, right=False), speed(600.0)), "wrong answers"),
        (1, Race("dense", "ripgrep", 1, speed(239.0), speed(600.0)), "of ripgrep's speed"),
        (2, Race("rare", "NVRx", 1, speed(60.0, 200 * MB), speed(1.5, 200 * MB)), "of NVRx's speed"),
    ],
)
def test_each_limit_is_seen_to_be_missed(number: int, race: Race, what: str):
    (name,) = missed([race if at == number else one for at, one in enumerate(GOOD)])
    assert what in name


def test_a_reading_that_is_all_start_gives_no_rate():
    assert math.isnan(Speed(10, 0.4, 0.4, 0.5, 0.5, 1.0, None).rate)


def test_a_command_is_timed_alone():
    done = timed([sys.executable, "-S", "-c", "import sys; b = bytearray(60_000_000); print(len(b)); sys.exit('last')"])
    assert (done.output, done.code, done.last_words) == ("60000000\n", 1, "last")
    assert done.peak_mb > 60
    assert done.cpu_s > 0
    ended = timed([sys.executable, "-S", "-c", "while True: pass"], cpu_limit_s=1)
    assert ended.code < 0


# --- NVRx ------------------------------------------------------------------------------------------------------------


def test_files_become_one_by_their_times(tmp_path):
    (tmp_path / "a.log").write_text("2026-05-04 10:00:02 late\n  its second line\r\n2026-05-04 10:00:04 last")
    (tmp_path / "b.log").write_text("before any time\n2026-05-04 10:00:01 early\n2026-05-04 10:00:03 between\n")
    origins, data = nvrx_analyser.merged(str(tmp_path), 1.78e9)
    assert [(one.file, one.line) for one in origins] == [
        ("b.log", 1), ("b.log", 2), ("a.log", 1), ("a.log", 2), ("b.log", 3), ("a.log", 3),
    ]  # fmt: skip
    assert data.count(b"\n") == len(origins)
    assert data.splitlines()[3] == b"  its second line "


def test_its_answer_is_told_in_our_shape():
    origins = [nvrx_analyser.Origin("x", 7), nvrx_analyser.Origin("y", 9)]
    layout = {"nodes": ["n1", "n2"], "gpus_per_node": 4}
    said = {"decision": "STOP", "primary_failure": {"line": 2, "rank": "5", "node": None}}
    got = nvrx_analyser.answer(said, origins, layout)
    assert got["first_error"] == {"file": "y", "line": 9, "rank": 5, "node": "n2"}
    assert (got["failed"], got["restart_ok"]) == (True, False)
    assert nvrx_analyser.answer(said, origins, None)["first_error"]["node"] is None
    said["primary_failure"]["rank"] = "8"
    assert nvrx_analyser.answer(said, origins, layout)["first_error"]["node"] is None
    assert nvrx_analyser.answer({"decision": "RESTART", "primary_failure": None}, origins, layout)["failed"] is False


@pytest.mark.skipif(nvrx_analyser.python() is None, reason="NVRx is not installed")
def test_the_real_one_is_asked(tmp_path):
    make(str(tmp_path), Shape(100_000, 2, 0.1))
    got = nvrx_analyser.diagnose(str(nvrx_analyser.python()), str(tmp_path), {"nodes": ["n"] * 640, "gpus_per_node": 8})
    assert got["first_error"]["rank"] == 3338
    with open(tmp_path / got["first_error"]["file"]) as file:
        assert "ECC" in file.read().splitlines()[got["first_error"]["line"] - 1]


# --- the labelled cases ----------------------------------------------------------------------------------------------

SCORER = """
import sys
print("line           1/2 (50 %)\\nnode           0/1 (0 %)")
if "mute" in sys.argv[2]: print("case: no JSON (exit 1)", file=sys.stderr)
"""


def test_scores_are_those_of_the_scorer_and_silence_is_none(tmp_path):
    scorer = tmp_path / "scorer.py"
    scorer.write_text(SCORER)
    score = earliest.measure_score(["loud"], str(tmp_path), str(scorer))
    assert score == {"line": (1, 2), "node": (0, 1)}
    with pytest.raises(ValueError, match="no JSON"):
        earliest.measure_score(["mute"], str(tmp_path), str(scorer))
    with pytest.raises(ValueError, match="no score"):
        earliest.measure_score(["loud"], str(tmp_path), os.devnull)
    figures = earliest.of_scores(
        {"relight": {"line": (40, 40), "node": (31, 34)}, "NVRx": {"line": (21, 40), "node": (13, 34)}}
    )
    assert [(one.value, one.beside) for one in figures] == [(40, {"of": 40, "NVRx": 21}), (31, {"of": 34, "NVRx": 13})]


# --- live ------------------------------------------------------------------------------------------------------------


def test_real_agents_with_wrong_clocks_tell_every_line():
    told = finding_delay.measure_delay(agents=3, lines=40)
    assert (told["findings"], told["agents"]) == (40, 3)
    assert 0 < told["delay_p50_ms"] <= told["delay_p99_ms"] <= told["delay_max_ms"]
    assert told["skew_s"] > 1
    # Wrong clocks that nobody had put right would be off by seconds.
    assert told["time_off_p99_ms"] < told["skew_s"] * 1000 / 2
    assert len(earliest.of_delay(told)) == 3


def test_a_finding_that_is_lost_or_late_or_dated_wrong_shows(tmp_path):
    found = json.loads('{"wall": 100.1, "offset_bound": 0.2}')
    near = type("Near", (), found)
    far = type("Far", (), {**found, "wall": 131.0})
    told = finding_delay.Told({(0, 1): (5.0, 100.0), (1, 1): (5.0, 100.0)}, {(0, 1): (5.1, near), (1, 1): (7.0, far)})
    got = finding_delay.figures(told)
    assert got["delay_max_ms"] == pytest.approx(2000)
    assert got["outside_bound"] == 1
    assert {one.name: one.good for one in earliest.of_delay({**got, "agents": 2, "skew_s": 31})} == {
        "a line to the controller, p50": True,
        "a line to the controller, p99": False,
        "findings whose time lies outside its bound": False,
    }
    del told.came[1, 1]
    with pytest.raises(RuntimeError, match="1 of 2 findings have not come"):
        finding_delay.figures(told)
