"""What `relight bench scenario|swarm|soak` print: one line a run, and why something did not hold."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b

from supervisor.bench.simulate import Outcome, every, quiet, tell
from supervisor.bench.swarm import swarm_one
from supervisor.errors import UserError


def scenarios(name: str, seed: int, *, as_json: bool, story: bool) -> int:
    """List, or tell one or all. Raises UserError."""
    quiet()
    known = every()
    if name == "list":
        for one in known.values():
            print(
                json.dumps({"schema": 1, "name": one.name, "told": one.told})
                if as_json
                else f"{one.name:24} {one.told}"
            )
        return 0
    if name != "all" and name not in known:
        raise UserError(f"scenario {name}: not known; see: relight bench scenario list")
    bad = 0
    for one in known.values() if name == "all" else [known[name]]:
        for mode in one.modes:
            began = time.perf_counter()
            outcome = tell(one, seed, mode=mode)
            _print(outcome, time.perf_counter() - began, as_json=as_json)
            if story:
                print(outcome.story())
            bad += not outcome.good
    return 1 if bad else 0


def _print(outcome: Outcome, seconds: float, *, as_json: bool) -> None:
    world = outcome.world
    if as_json:
        print(
            json.dumps(
                {
                    "schema": 1,
                    "name": outcome.scenario,
                    "mode": outcome.mode,
                    "seed": outcome.seed,
                    "good": outcome.good,
                    "why": outcome.why(),
                    "points": world.points.passed,
                    "turns": sum(life.turns for life in world.lives),
                    "journal": blake2b(world.disk.whole(), digest_size=16).hexdigest(),
                }
            )
        )
        return
    word = "ok " if outcome.good else "BAD"
    print(f"{word} {outcome.scenario:24} {outcome.mode:8} {world.points.passed:5} points  {seconds:5.2f} s")
    for line in outcome.why():
        print(f"    {line}")


def swarm(seeds: str, jobs: int) -> int:
    """All seeds from A to B. Raises UserError."""
    first, _, last = seeds.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        raise UserError(f"--seeds {seeds}: give two numbers, as in 0-199")
    wanted = range(int(first), int(last or first) + 1)
    began = time.perf_counter()
    bad = _report(_results(wanted, jobs))
    print(f"{len(wanted)} seeds, {bad} bad, {time.perf_counter() - began:.1f} s")
    return 1 if bad else 0


def soak(minutes: float, begin: int | None) -> int:
    """Seed after seed until the time is over."""
    seed = int(time.time()) if begin is None else begin
    end = time.monotonic() + 60 * minutes
    done = bad = 0
    while time.monotonic() < end:
        bad += _report([judge(seed + done)])
        done += 1
    print(f"{done} seeds from {seed}, {bad} bad")
    return 1 if bad else 0


def judge(seed: int) -> tuple[int, list[str]]:
    """A seed, and what did not hold."""
    quiet()
    return seed, swarm_one(seed).why()


def _results(seeds: range, jobs: int) -> Iterator[tuple[int, list[str]]]:
    if jobs == 1:
        yield from map(judge, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(judge, seeds, chunksize=8)


def _report(results: Iterable[tuple[int, list[str]]]) -> int:
    bad = 0
    for seed, why in results:
        if why:
            bad += 1
            print(f"seed {seed}:")
            for line in why:
                print(f"    {line}")
    return bad
