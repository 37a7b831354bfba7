"""`relight interval`: how often to save, from what a save costs and how often a rollback comes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import click

from policies import interval as saving
from supervisor.errors import UserError
from supervisor.telling import say

SCHEMA: Final = 1
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Final[dict[str, int]] = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("kMGTP", 1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGTP", 1)},
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(min|[smhd])")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGTP]?i?B)")
_LENGTH_MAX: Final = 40


def duration(text: str) -> float:
    """90s, 3m, 24h, 2d, 1h30m: seconds. BadParameter (exit 2) says what would be right."""
    parts = _DURATION.findall(text) if len(text) <= _LENGTH_MAX else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text[:_LENGTH_MAX]!r} is no duration; write 90s, 3m, 24h, 2d or 1h30m")
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)


def size(text: str) -> float:
    """7TB (10^12 bytes) or 7TiB (2^40 bytes): bytes. BadParameter (exit 2) says what would be right."""
    match = _SIZE.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None or match[2] not in _BYTES:
        raise click.BadParameter(f"{text[:_LENGTH_MAX]!r} is no size; write 7TB, 800GB or 6.5TiB")
    return float(match[1]) * _BYTES[match[2]]


@click.command(
    "interval",
    epilog="""\b
Examples:
  relight interval --save-cost 3m --mtbf 24h
  relight interval --save-cost 3m --mtbf 24h --size 7TB --completion-delay 8m
  relight interval --save-cost 12s --mtbf 90h --json
  relight interval demo""",
)
@click.argument("run", required=False)
@click.option("--save-cost", type=duration, help="How long one save blocks training, such as 3m.")
@click.option("--mtbf", type=duration, help="Mean time between rollbacks, such as 24h.")
@click.option("--size", "save_size", type=size, help="Size of one save, such as 7TB: adds what is written a day.")
@click.option(
    "--completion-delay",
    type=duration,
    help="From when training goes on until the save is completed. [default: 0s]",
)
@click.option(
    "--every",
    "candidates",
    type=duration,
    multiple=True,
    help="An interval to compare, such as 45m; may be given again. [default: 30m 1h 90m 2h]",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable: seconds, bytes and shares.")
def command(
    *,
    run: str | None,
    save_cost: float | None,
    mtbf: float | None,
    save_size: float | None,
    completion_delay: float | None,
    candidates: tuple[float, ...],
    as_json: bool,
) -> None:
    """How often to save: the time that saves block against the work that a rollback throws away.

    C/T + T/(2M) is least at T = sqrt(2CM). It leaves out correlated faults, changing recovery times and conflicts
    between saves: use it to choose candidates, and let the run's records decide.

    With RUN, what is not given is taken from what was measured there.
    """
    if run is not None:
        seen = measured(run)
        save_cost = seen.save_cost if save_cost is None else save_cost
        mtbf = seen.mtbf if mtbf is None else mtbf
        save_size = seen.size if save_size is None else save_size
        completion_delay = seen.delay if completion_delay is None else completion_delay
        if not as_json:
            click.echo(seen.text)
    if run is not None and save_cost == 0:
        raise UserError(f"{run}: a save blocked training for less than could be told; give --save-cost", 3)
    if save_cost is None or mtbf is None:
        raise click.UsageError("give --save-cost and --mtbf, or a RUN in which both were measured")
    completion_delay = completion_delay or 0.0
    try:
        best = saving.young(save_cost, mtbf)
        refined = saving.daly(save_cost, mtbf)
        rows = saving.table(save_cost, mtbf, save_size, completion_delay, candidates or saving.CANDIDATES_S)
    except ValueError as error:
        raise click.UsageError(f"{error} (C: --save-cost, M: --mtbf, T: --every, size: --size)") from None
    if as_json:
        click.echo(json.dumps(_as_json(best, refined, rows)))
        return
    click.echo(
        f"Least loss: a save every {_minutes(best)} (sqrt(2CM)); {_minutes(refined)} by Daly's higher-order estimate."
    )
    click.echo(f"{'every':>10}  {'saving':>7}  {'redoing':>7}  {'total':>7}" + ("  written a day" if save_size else ""))
    for row in rows:
        click.echo(_line(row))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run has shown. Seconds and bytes; None where nothing was measured."""

    save_cost: float | None
    mtbf: float | None
    size: float | None
    delay: float
    text: str


def measured(run: str) -> Measured:
    """C, M, size and completion delay of a run, from its journal. Raises UserError."""
    from supervisor.commands.asking import look  # noqa: PLC0415 - only with RUN

    history, now = (seen := look(run)).history, seen.now
    costs = history.save_costs
    blocked = [c.blocked_s for c in costs if c.blocked_s is not None]
    delays = [max(0.0, c.completed_s - (c.blocked_s or 0.0)) for c in costs if c.completed_s is not None]
    ended = max((a.closed_at for a in history.attempts if a.closed_at), default=now) if history.ended else now
    lasted = ended - history.started_at if history.started_at is not None else None
    rollbacks = len(history.incidents)
    mtbf = lasted / rollbacks if lasted and rollbacks else None
    text = (
        f"{history.run}: {len(costs)} completed saves, {rollbacks} rollbacks in {_minutes(lasted or 0.0)}; "
        f"a save blocks {_mean(blocked)} and is completed {_mean(delays)} later"
    )
    beside = [c.step_s_beside for c in costs if c.step_s_beside is not None]
    peaks = [c.host_peak_bytes for c in costs if c.host_peak_bytes is not None]
    text += f"; a step beside it takes {fmean(beside):.2f} s" if beside else ""
    text += f"; the ranks of a node hold up to {say.size(max(peaks))} meanwhile" if peaks else ""
    size = fmean(c.bytes for c in costs) if costs else None
    return Measured(fmean(blocked) if blocked else None, mtbf, size, fmean(delays) if delays else 0.0, text)


def _mean(values: list[float]) -> str:
    return f"{fmean(values):.2f} s" if values else "for a time that nobody told"


def _line(row: saving.Row) -> str:
    shares = "  ".join(f"{100 * share:6.2f}%" for share in (row.loss.save, row.loss.redo, row.loss.total))
    written = f"  {say.size(row.bytes_per_day)}" if row.bytes_per_day is not None else ""
    return f"{_minutes(row.interval_s):>10}  {shares}{written}"


def _minutes(seconds: float) -> str:
    """34 s, 93 min: one unit, so that intervals can be compared at sight."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _as_json(best: float, refined: float, rows: tuple[saving.Row, ...]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "young_s": best,
        "daly_s": refined,
        "rows": [
            {
                "interval_s": row.interval_s,
                "save_share": row.loss.save,
                "redo_share": row.loss.redo,
                "total_share": row.loss.total,
                "bytes_per_day": row.bytes_per_day,
            }
            for row in rows
        ],
    }
