"""Anything may die: every scenario, killed at every boundary, and a thousand worlds that are drawn from seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from supervisor.bench.proofs.work import Work
from supervisor.bench.simulate import every, killed_at_each, quiet, tell
from supervisor.bench.telling import judge

SEEDS = 1_000
_SHOWN = 3


def prove(work: Work) -> None:
    """Scenarios, boundaries, seeds. On all cores; one world is one thread."""
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        names = [(one.name, mode) for one in every().values() for mode in one.modes]
        for (name, mode), why in zip(names, pool.map(_told, names), strict=True):
            if why:
                work.check(f"{name} ({mode}): {'; '.join(why)}", ok=False)
        work.check(f"{len(names)} tellings of {len(every())} scenarios hold", ok=True)
        points = 0
        killed = [(name, mode) for name, mode in names if every()[name].killed]
        for (name, mode), (count, bad) in zip(killed, pool.map(_killed, killed), strict=True):
            points += count
            work.check(f"{name} ({mode}): {count} deaths of the controller{_some(bad)}", ok=not bad)
        work.measured |= {"crash_points": points, "seeds": SEEDS}
        bad_seeds = [f"{seed}: {'; '.join(why)}" for seed, why in pool.map(judge, _seeds(work), chunksize=8) if why]
        work.check(f"{SEEDS} seeds keep every promise and come to rest{_some(bad_seeds)}", ok=not bad_seeds)


def _seeds(work: Work) -> Iterator[int]:
    return iter(range(work.seed * 10_000, work.seed * 10_000 + SEEDS))


def _some(bad: list[str]) -> str:
    return f"; {len(bad)} bad: {' | '.join(bad[:_SHOWN])}" if bad else ""


def _told(what: tuple[str, str]) -> list[str]:
    quiet()
    return tell(every()[what[0]], mode=what[1]).why()


def _killed(what: tuple[str, str]) -> tuple[int, list[str]]:
    """How many deaths, and those after which something did not hold."""
    quiet()
    name, mode = what
    deaths = killed_at_each(every()[name], mode=mode)
    return len(deaths), [f"at {one.point} ({one.where}): {'; '.join(one.why[:2])}" for one in deaths if one.why]
