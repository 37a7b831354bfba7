"""`relight bench figures`: what relight costs and how quick it is, each against a limit or a rival in the same run."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Final

import click

from supervisor.bench import agents, checkpoint_reading, costs, earliest, slurm_launch, slurm_poll
from supervisor.bench.crowd.load import figures as load_of_console
from supervisor.bench.figure import Figure
from supervisor.bench.rivals.contest import Relight, Rival, Sample, bare, clear, contest, torchrun
from supervisor.durable import replace_whole

RIVALS: Final[Mapping[str, Callable[[], Rival]]] = {
    "bare": bare,
    "cold": lambda: Relight(warm=False),
    "warm": lambda: Relight(warm=True),
    "torchrun": torchrun,
}
PARTS: Final = ("restart", "costs", "earliest-error", "checkpoints", "console", "slurm")
"""What can be measured alone."""

LATER_S: Final = 0.25
"""How much later than under a bare restart the new ranks may begin, seconds."""
COLD_SHARE: Final = 1.15
WARM_SHARE: Final = 0.3
"""The time to a step, as a share of that of a bare restart."""
RECOVERY_S: Final = 2.0
HELP_S: Final = 0.2


def medians(samples: Sequence[Sample]) -> Sample:
    """The median of each time, over the repeats. Stages that not every repeat has are left out."""
    stages = set.intersection(*(set(s.stages) for s in samples))
    order = [name for name in samples[0].stages if name in stages]
    return Sample(
        first_statement=statistics.median(s.first_statement for s in samples),
        all_begun=statistics.median(s.all_begun for s in samples),
        next_step=statistics.median(s.next_step for s in samples),
        new_step=statistics.median(s.new_step for s in samples),
        stages={name: statistics.median(s.stages[name] for s in samples) for name in order},
    )


def of_contests(samples: Mapping[str, Sequence[Sample]]) -> list[Figure]:
    """Figures 1 to 3: from the death of a rank to the first statements and to the next steps."""
    all_of = {name: medians(found) for name, found in samples.items()}
    low, cold, warm = all_of["bare"], all_of["cold"], all_of["warm"]

    def beside(what: str) -> dict[str, float]:
        return {f"{name} s": getattr(found, what) for name, found in all_of.items()}

    figures = []
    for what, text in (("first_statement", "the first new rank begins"), ("all_begun", "the last new rank begins")):
        later = getattr(cold, what) - getattr(low, what)
        figures.append(Figure(f"{text}, later than under a bare restart", later, "s", LATER_S, beside(what)))
    for what, text in (("next_step", "to the next step"), ("new_step", "to the next new step")):
        ratio = getattr(cold, what) / getattr(low, what)
        figures.append(Figure(f"{text}, of a bare restart", ratio, "x", COLD_SHARE, beside(what)))
        ratio = getattr(warm, what) / getattr(low, what)
        figures.append(Figure(f"{text}, warm, of a bare restart", ratio, "x", WARM_SHARE))
    for name in ("cold", "warm"):
        stages = {f"{stage} s": at for stage, at in all_of[name].stages.items()}
        begun = all_of[name].all_begun
        figures.append(Figure(f"from the death to all ranks begun, {name}, by stage", begun, "s", None, stages))
    return figures


def of_costs(told: Mapping[str, float]) -> list[Figure]:
    """Figures 4 to 8, from what `measure_costs` told."""
    limits = agents.LIMITS

    def figure(text: str, key: str, unit: str, limit: float | None = None, **beside: str) -> Figure:
        return Figure(text, told[key], unit, limit, {label.replace("_", " "): told[k] for label, k in beside.items()})

    return [
        figure("a call of the training's side, p50", "call_p50_us", "us", limits["call_p50_us"], dropped="dropped"),
        figure("a call of the training's side, p99", "call_p99_us", "us", limits["call_p99_us"]),
        figure("hearing 640 agents, share of a core", "cpu_share", "x", limits["cpu_share"], agents="agents"),
        figure("hearing 640 agents, memory", "rss_mb", "MB", limits["rss_mb"]),
        figure("relight --help", "help_s", "s", HELP_S, bare_python_s="python_s"),
        figure("reading and folding a journal", "recovery_s", "s", RECOVERY_S, entries="entries", MB="size_mb"),
        figure("a journal entry on disk, p50", "append_p50_ms", "ms", None, p99_ms="append_p99_ms"),
        figure("a view of 5,120 ranks", "view_ms", "ms", limits["view_ms"]),
        figure("a look at 5,120 ranks, all well", "tick_calm_ms", "ms"),
        figure("a look at 5,120 ranks, at acceptance", "tick_acceptance_ms", "ms"),
        figure("a look at 5,120 ranks, all dead", "tick_cascade_ms", "ms"),
        figure("a seal, in memory", "seal_mb_s", "MB/s", None, plain_read_and_sum_MB_per_s="read_mb_s"),
    ]


def measure_contests(folder: str, repeats: int, say: Callable[[str], None]) -> dict[str, list[Sample]]:
    """Each rival in turn, `repeats` times over, so that a busy moment of the machine meets all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in RIVALS}
    for turn in range(1, repeats + 1):
        for name, make in RIVALS.items():
            rival = make()
            sample = contest(rival, os.path.join(folder, f"{name}-{turn}"))
            samples[name].append(sample)
            say(
                f"{turn}/{repeats} {rival.name}: ranks begin after {sample.first_statement:.2f} to "
                f"{sample.all_begun:.2f} s, next step {sample.next_step:.2f} s, next new step {sample.new_step:.2f} s"
            )
    return samples


def measure_costs(folder: str, say: Callable[[str], None]) -> dict[str, float]:
    """Everything that needs no training."""
    told: dict[str, float] = {}
    work: tuple[tuple[str, Callable[[], dict[str, float]]], ...] = (
        ("the training's side", agents.measure_calls),
        ("640 agents", agents.measure_agents),
        ("a view", agents.measure_views),
        ("the command line", costs.measure_help),
        ("a long journal", lambda: costs.measure_journal(os.path.join(folder, "journal"))),
        ("looks at a long run", costs.measure_ticks),
        ("a seal", lambda: costs.measure_seal(os.path.join(folder, "seal"))),
    )
    for text, measure in work:
        say(f"measuring {text}")
        told |= measure()
    return told


def report(
    figures: Sequence[Figure], samples: Mapping[str, Sequence[Sample]], load: float, skipped: Sequence[str] = ()
) -> dict[str, object]:
    """What build/bench.json holds. `load`: of the machine, before the first contest; `skipped`: what could not be had."""
    return {
        "schema": 1,
        "ok": all(figure.good for figure in figures),
        "figures": [{**asdict(figure), "good": figure.good} for figure in figures],
        "skipped": list(skipped),
        "samples": {name: [asdict(sample) for sample in found] for name, found in samples.items()},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "load_before": load,
            "load_after": os.getloadavg()[0],
            "python": platform.python_version(),
            "torch": _version("torch"),
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def rows(figures: Sequence[Figure]) -> list[tuple[str, str, str, str, str]]:
    """The table: figure, measured, limit, beside it, verdict."""
    return [
        (
            one.name,
            f"{_short(one.value)} {one.unit}",
            "" if one.limit is None else f"{'>= ' if one.least else ''}{_short(one.limit)} {one.unit}",
            ", ".join(f"{label} {_short(value)}" for label, value in one.beside.items()),
            "" if one.limit is None else "ok" if one.good else "MISSED",
        )
        for one in figures
    ]


def _short(value: float) -> str:
    """Three figures that count; whole numbers as they are."""
    if math.isnan(value):
        return "not told"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def show(figures: Sequence[Figure]) -> None:
    """A table on a terminal, lines elsewhere."""
    heads = ("figure", "measured", "limit", "beside", "")
    if not sys.stdout.isatty():
        for row in rows(figures):
            click.echo("\t".join(row).rstrip())
        return
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.table import Table  # noqa: PLC0415

    table = Table(*heads)
    for row in rows(figures):
        table.add_row(*row, style="bold red" if row[-1] == "MISSED" else None)
    Console().print(table)


def main(folder: str, *, repeats: int, as_json: bool, parts: Sequence[str] = PARTS) -> int:
    """Measure, tell, keep. Exit code 0: every limit holds."""
    work = os.path.join(folder, "figures")
    clear(work)
    os.makedirs(work)

    def say(text: str) -> None:
        click.echo(text, err=True)

    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > cores / 2:
        say(f"this machine is busy (load {load:.1f} on {cores} cores): limits in seconds may be missed for that alone")
    samples: dict[str, list[Sample]] = {}
    figures: list[Figure] = []
    skipped: list[str] = []
    if "restart" in parts:
        samples = measure_contests(work, repeats, say)
        figures += of_contests(samples)
    if "costs" in parts:
        figures += of_costs(measure_costs(work, say))
    if "earliest-error" in parts:
        found, skipped = earliest.measure(work, repeats, say)
        figures += found
    if "checkpoints" in parts:
        found, left = checkpoint_reading.measure(work, say)
        figures += found
        skipped += left
    if "console" in parts:
        figures += load_of_console(work, say)
    if "slurm" in parts:
        for part in (slurm_poll, slurm_launch):
            found, left = part.measure(repeats, say)
            figures += found
            skipped += left
    clear(work)
    told = report(figures, samples, load, skipped)
    path = os.path.join(folder, "bench.json")
    replace_whole(path, json.dumps(told, indent=1).encode())
    if as_json:
        click.echo(json.dumps(told))
    else:
        show(figures)
        for text in skipped:
            click.echo(f"skipped: {text}")
        click.echo(f"kept in {path}")
    return 0 if told["ok"] else 1
