"""Figures of the earliest error: how fast logs are read, how often the answer is right, how soon a line is known live."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from supervisor.bench import finding_delay, scanning
from supervisor.bench.figure import Figure
from supervisor.bench.rivals import nvrx_analyser
from supervisor.bench.scanning import Race, Rivals, Speed
from supervisor.bench.timed import timed

SIZE: Final = 800_000_000
"""Bytes of logs beside ripgrep. The first words of 5,120 ranks cost half a second whatever the size; a job leaves GBs."""

RIVAL_SIZE: Final = 200_000_000
"""Bytes beside NVRx's analyser, which takes minutes for them."""

OF_RIPGREP: Final[Mapping[str, float]] = {"rare": 1.0, "dense": 0.4}
OF_NVRX: Final = 50.0
"""The least speeds, as a share of the rival's."""

MEMORY_MB: Final = 150.0
DELAY_MS: Final = 1000.0
"""The most that a line may take to the controller (p99): an agent looks at its logs four times a second."""

OUTSIDE: Final = 0.01
"""The share of findings whose time may be off by more than they say: on a busy machine an agent looks late."""

_SHARED: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared")
CASES: Final = os.path.normpath(os.path.join(_SHARED, "logs", "cases"))
SCORER: Final = os.path.normpath(os.path.join(_SHARED, "tools", "score_diagnose.py"))
"""Labelled cases and their scorer: beside a checkout of the project's own, on no user's machine."""

Score = Mapping[str, tuple[int, int]]
"""What is right, and of how many."""


def of_races(races: Sequence[Race]) -> tuple[list[Figure], list[str]]:
    """The figures of the races, and what was skipped."""
    figures: list[Figure] = []
    skipped: list[str] = []
    for race in races:
        text = f"diagnose, {scanning.SHARES[race.what]:.2%} candidates"
        if race.why:
            skipped.append(f"{text}: {race.rival} is not compared: {race.why}")
        if race.rival == "ripgrep":
            figures += _beside_ripgrep(text, race)
        elif race.theirs is not None:
            ratio = race.ours.whole_rate / race.theirs.whole_rate
            beside = _whole("ours", race.ours) | _whole("NVRx", race.theirs) | {"NVRx right": _flag(race.theirs)}
            figures.append(Figure(f"{text}: of NVRx's speed", ratio, "x", OF_NVRX, beside, least=True))
    wrong = sum(1 for race in races if race.ours.right is not True)
    figures.append(Figure("diagnose: wrong answers on these logs", wrong, "", 0.0, {"of": len(races)}))
    return figures, skipped


def _beside_ripgrep(text: str, race: Race) -> list[Figure]:
    ours, theirs = race.ours, race.theirs
    told = {
        "MB": ours.size / 1e6,
        "lines": race.lines,
        "start s": ours.start_cpu_s,
        "MB/s by the clock": ours.wall_rate,
    }
    figures = [
        Figure(f"{text}: speed of a core", ours.rate, "MB/s", None, told | {"start and all": ours.whole_rate}),
        Figure(f"{text}: peak memory", ours.peak_mb, "MB", MEMORY_MB),
    ]
    if theirs is not None:
        beside = {"ripgrep MB/s": theirs.rate, "ripgrep MB/s by the clock": theirs.wall_rate}
        beside |= {"ripgrep start s": theirs.start_cpu_s, "start and all x": ours.whole_rate / theirs.whole_rate}
        limit = OF_RIPGREP[race.what]
        figures.insert(
            1, Figure(f"{text}: of ripgrep's speed", ours.rate / theirs.rate, "x", limit, beside, least=True)
        )
    return figures


def _whole(name: str, speed: Speed) -> dict[str, float]:
    return {f"{name} MB/s": speed.whole_rate, f"{name} s by the clock": speed.wall_s, f"{name} peak MB": speed.peak_mb}


def _flag(speed: Speed) -> float:
    return float("nan") if speed.right is None else float(speed.right)


def read_score(said: str) -> dict[str, tuple[int, int]]:
    """What the scorer printed: `line  21/40 (52 %)` and so on."""
    found = re.findall(r"^(\w+)\s+(\d+)/(\d+) \(", said, re.MULTILINE)
    return {name: (int(good), int(of)) for name, good, of in found}


def measure_score(command: Sequence[str], cases: str = CASES, scorer: str = SCORER) -> Score:
    """What the scorer counts for a command. Raises ValueError when a case got no answer: silence is not a wrong answer."""
    done = timed([sys.executable, scorer, "--cmd", " ".join(command), cases])
    score = read_score(done.output)
    if done.code != 0 or not score or "no JSON" in done.last_words:
        raise ValueError(f"no score: {done.last_words}")
    return score


def of_scores(scores: Mapping[str, Score]) -> list[Figure]:
    """Lines and nodes that are right on the labelled cases, in all and of each rival."""
    figures = []
    for what in ("line", "node"):
        good, of = scores["relight"][what]
        beside = {"of": float(of)} | {
            name: float(score[what][0]) for name, score in scores.items() if name != "relight"
        }
        figures.append(Figure(f"labelled cases: {what} right", good, "", None, beside))
    return figures


def measure_scores(say: Callable[[str], None]) -> tuple[list[Figure], list[str]]:
    """Ours and NVRx's on the labelled cases, where they are."""
    if not os.path.isdir(CASES) or not os.path.isfile(SCORER):
        return [], ["labelled cases are not here: nothing is scored"]
    say("the labelled cases")
    scores = {"relight": measure_score([sys.executable, "-m", "supervisor", "diagnose", "--json"])}
    if nvrx_analyser.python() is None:
        return of_scores(scores), ["labelled cases: NVRx is not installed"]
    try:
        rival = [sys.executable, "-m", "supervisor.bench.rivals.nvrx_analyser", "--layouts", CASES]
        scores["NVRx"] = measure_score(rival)
    except ValueError as error:
        return of_scores(scores), [f"labelled cases: NVRx gave {error}"]
    return of_scores(scores), []


def of_delay(told: Mapping[str, float]) -> list[Figure]:
    """From the line to the hub."""
    beside = {"agents": told["agents"], "lines": told["findings"]}
    times = {"off by ms, p99": told["time_off_p99_ms"], "clocks wrong by up to s": told["skew_s"]}
    outside = told["outside_bound"] / told["findings"]
    return [
        Figure("a line to the controller, p50", told["delay_p50_ms"], "ms", None, beside),
        Figure(
            "a line to the controller, p99", told["delay_p99_ms"], "ms", DELAY_MS, {"most ms": told["delay_max_ms"]}
        ),
        Figure("findings whose time lies outside its bound", outside, "x", OUTSIDE, times),
    ]


def measure(
    folder: str, repeats: int, say: Callable[[str], None], size: int = SIZE, rival_size: int = RIVAL_SIZE
) -> tuple[list[Figure], list[str]]:
    """All of it: the figures, and what could not be had. Works below `folder`."""
    say("lines of 64 agents with wrong clocks")
    live = of_delay(finding_delay.measure_delay())
    scores, unscored = measure_scores(say)
    rivals = Rivals(scanning.relight(), scanning.ripgrep(), scanning.nvrx())
    found, skipped = of_races(scanning.measure(folder, size, rival_size, repeats, say, rivals))
    if rivals.nvrx is None:
        skipped.append(
            "diagnose: NVRx is not compared: it is not installed (`make setup` does it, where it can be had)"
        )
    return [*found, *scores, *live], [*skipped, *unscored]
