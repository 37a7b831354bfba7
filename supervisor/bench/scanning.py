"""How fast the earliest error is found in made-up logs: `relight diagnose`, beside ripgrep and beside NVRx's analyser.

Each runs as the command that people type, one process and one thread, on the same bytes, which are in memory. What a
command takes for next to no logs is its start; rates are told without it, and the whole commands beside.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from supervisor.bench.logs import Shape, make
from supervisor.bench.rivals import nvrx_analyser
from supervisor.bench.timed import Timed, timed
from supervisor.errors import UserError

SHARES: Final[Mapping[str, float]] = {"rare": 0.0001, "dense": 0.2}
"""Shares of lines that are candidates."""

FILES: Final = 64
SMALL: Final = 20_000
"""Bytes of logs of which a command's start is told."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A tool: the command for a folder of logs, and whether what it printed names the guilty rank (None: it names none)."""

    command: Callable[[str], list[str]]
    right: Callable[[str, Shape], bool] | None = None
    codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Who runs; None: it is not there."""

    ours: Runner
    ripgrep: Runner | None
    nvrx: Runner | None


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians over the turns: seconds of CPU and on the clock for `size` bytes and for next to none, peak memory in MB."""

    size: int
    cpu_s: float
    wall_s: float
    start_cpu_s: float
    start_wall_s: float
    peak_mb: float
    right: bool | None

    @property
    def rate(self) -> float:
        """MB a second of one core, the start apart; nan when the start is all that could be seen."""
        taken = self.cpu_s - self.start_cpu_s
        return self.size / 1e6 / taken if taken > 0 else float("nan")

    @property
    def wall_rate(self) -> float:
        """The same on the clock."""
        taken = self.wall_s - self.start_wall_s
        return self.size / 1e6 / taken if taken > 0 else float("nan")

    @property
    def whole_rate(self) -> float:
        """MB a second of one core, the start and all."""
        return self.size / 1e6 / self.cpu_s


@dataclass(frozen=True, slots=True)
class Race:
    """Ours beside a rival on the same `lines` lines, of which the share `what` are candidates.

    `theirs` None: the rival is not there or failed, and `why` says so.
    """

    what: str
    rival: str
    lines: int
    ours: Speed
    theirs: Speed | None
    why: str = ""


def relight() -> Runner:
    """The product."""

    def right(said: str, shape: Shape) -> bool:
        first = json.loads(said)["first_error"] or {}
        return (first.get("rank"), first.get("node")) == (shape.guilty, shape.node)

    return Runner(lambda folder: [sys.executable, "-m", "supervisor", "diagnose", "--json", folder], right)


def ripgrep(tool: str | None = None) -> Runner | None:
    """Ripgrep with the table's own patterns in one alternation; None where it is not installed."""
    from supervisor.evidence.table import table  # noqa: PLC0415 - compiles all patterns

    tool = tool or shutil.which("rg")
    if tool is None:
        return None
    pattern = "|".join(f"(?:{row.find})" if row.case else f"(?i:{row.find})" for row in table())
    # --no-unicode: as bytes, as we look for them; it is the quicker way. --no-config: a person's own settings.
    options = ["--no-config", "-j1", "-a", "-c", "--no-unicode", "--no-ignore", "--hidden"]
    return Runner(lambda folder: [tool, *options, "-e", pattern, folder], codes=(0, 1))


def nvrx() -> Runner | None:
    """NVRx's analyser on the one file of a folder; None where it is not installed."""
    python = nvrx_analyser.python()
    if python is None:
        return None

    def right(said: str, shape: Shape) -> bool:
        first = nvrx_analyser.answer(json.loads(said), None, None)["first_error"] or {}
        return first.get("rank") == shape.guilty

    def command(folder: str) -> list[str]:
        (name,) = os.listdir(folder)
        return nvrx_analyser.command(python, os.path.join(folder, name))

    return Runner(command, right)


@contextmanager
def logs(folder: str, shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Made-up logs below `folder` for as long as they are needed: their own folder, bytes, lines."""
    place = tempfile.mkdtemp(dir=folder)
    try:
        made = make(place, shape)
        yield place, made.bytes, made.lines
    finally:
        shutil.rmtree(place)


def _run(name: str, runner: Runner, folder: str) -> Timed:
    done = timed(runner.command(folder))
    if done.code not in runner.codes:
        raise UserError(f"{name} ended with {done.code}: {done.last_words}", 1)
    return done


def _speed(size: int, starts: Sequence[Timed], runs: Sequence[Timed], runner: Runner, shape: Shape) -> Speed:
    return Speed(
        size,
        statistics.median(one.cpu_s for one in runs),
        statistics.median(one.wall_s for one in runs),
        statistics.median(one.cpu_s for one in starts),
        statistics.median(one.wall_s for one in starts),
        max(one.peak_mb for one in runs),
        None if runner.right is None else all(runner.right(one.output, shape) for one in runs),
    )


def race(folder: str, what: str, shape: Shape, rival: str, ours: Runner, theirs: Runner | None, turns: int) -> Race:
    """Both in turn, `turns` times over, so that a busy moment meets both. Raises UserError when ours fails."""
    small = Shape(SMALL, 1, 0.0, shape.guilty)
    starts: list[Timed] = []
    runs: list[Timed] = []
    their_starts: list[Timed] = []
    their_runs: list[Timed] = []
    why = f"{rival} is not installed" if theirs is None else ""
    with logs(folder, small) as (little, _, _), logs(folder, shape) as (place, size, lines):
        for _ in range(turns):
            starts.append(_run("relight", ours, little))
            runs.append(_run("relight", ours, place))
            if theirs is None:
                continue
            try:
                their_starts.append(_run(rival, theirs, little))
                their_runs.append(_run(rival, theirs, place))
            except (UserError, OSError) as error:
                theirs, why = None, str(error)
    mine = _speed(size, starts, runs, ours, shape)
    return Race(
        what,
        rival,
        lines,
        mine,
        None if theirs is None else _speed(size, their_starts, their_runs, theirs, shape),
        why,
    )


def measure(
    folder: str, size: int, rival_size: int, turns: int, say: Callable[[str], None], rivals: Rivals
) -> list[Race]:
    """Both shares: beside ripgrep on `size` bytes, `turns` times; beside NVRx, where it is, on `rival_size` in one file, once."""
    races = []
    for what, share in SHARES.items():
        say(f"reading {size / 1e6:,.0f} MB of logs, {share:.2%} of the lines candidates")
        shape = Shape(size, FILES, share)
        races.append(race(folder, what, shape, "ripgrep", rivals.ours, rivals.ripgrep, turns))
        if rivals.nvrx is not None:
            say(f"reading {rival_size / 1e6:,.0f} MB beside NVRx, which takes minutes")
            shape = Shape(rival_size, 1, share)
            races.append(race(folder, what, shape, "NVRx", rivals.ours, rivals.nvrx, 1))
    return races
