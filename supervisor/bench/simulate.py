"""Tell a scenario in the simulated world: once, with another seed, in another mode, killed at any boundary.

A scenario is a small file in `supervisor/bench/scenarios/`: given, when, then. Its docstring is what the person on call
would say.
"""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import structlog

from policies.history import History
from supervisor.bench import scenarios
from supervisor.bench.checkers import Broken, Checkers
from supervisor.bench.words import Then, When
from supervisor.bench.world.given import Given
from supervisor.bench.world.points import Branching, Points, in_copies
from supervisor.bench.world.timeline import clock
from supervisor.bench.world.world import Plant, SimWorld
from supervisor.telling.incident_facts import Known
from supervisor.telling.incident_story import incident_story
from supervisor.telling.story import run_story

ENOUGH_S = 60.0
"""A run that has ended is watched so much longer."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Given, when, then. `until`: time of day. `modes`: in which it holds; `killed`: may the controller die anywhere in it?"""

    name: str
    told: str
    given: Given
    when: tuple[When, ...]
    then: tuple[Then, ...]
    until: str
    modes: tuple[str, ...] = ("auto", "approve")
    killed: bool = True
    first: tuple[When, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. `failed`: what of `then` is not so; `broken`: promises; `raised`: a traceback of the product."""

    scenario: str
    seed: int
    mode: str
    world: SimWorld
    history: History
    failed: tuple[str, ...]
    broken: tuple[Broken, ...]
    raised: str = ""

    @property
    def good(self) -> bool:
        """Did all hold?"""
        return not (self.failed or self.broken or self.raised)

    def why(self) -> list[str]:
        """What did not, one line each."""
        lines = [f"promise {b.number} ({b.title}): {b.text}" for b in self.broken[:5]]
        return [*lines, *self.failed, *([self.raised.strip().splitlines()[-1]] if self.raised else [])]

    def story(self) -> str:
        """The product's own account of it."""
        known = Known(layout=self.world.given.layout, now=self.world.time.now)
        parts = [run_story(self.history, known)]
        parts += [incident_story(self.history, i.number, known) for i in self.history.incidents]
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Death:
    """How it went on after the controller had died at a boundary, which `where` names; `why` it is not good, if so."""

    point: int
    where: str
    why: tuple[str, ...]


def quiet() -> None:
    """The product's log lines are for the person at a real run."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@cache
def every() -> dict[str, Scenario]:
    """All scenarios, by name."""
    found = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(scenarios.__path__)):
        one = importlib.import_module(f"{scenarios.__name__}.{module}")
        told = " ".join((one.__doc__ or "").split())
        scenario = Scenario(module.replace("_", "-"), told, **one.STORY)
        found[scenario.name] = scenario
    return found


def tell(
    scenario: Scenario,
    seed: int = 0,
    *,
    mode: str | None = None,
    kills: frozenset[int] = frozenset(),
    twice: bool = False,
    plant: Plant | None = None,
    points: Points | None = None,
) -> Outcome:
    """Let it happen, and say how it went."""
    given = scenario.given
    if mode is not None:
        given = given.but(rules=given.rules.model_copy(update={"mode": mode}))
    if twice:
        given = given.but(twice=True)
    watch = Checkers()
    world = SimWorld(given, seed, points or Points(kills), watch, plant)
    watch.world = world

    def play() -> None:
        _play(world, scenario.when, clock(scenario.until))

    return run_guarded(scenario.name, seed, world, watch, play, scenario.then)


def run_guarded(
    name: str, seed: int, world: SimWorld, watch: Checkers, play: Callable[[], None], then: tuple[Then, ...]
) -> Outcome:
    """Play, and say how it went; what the product raises is a finding, and ends the story."""
    raised = ""
    try:
        play()
    except Exception:  # noqa: BLE001 - see above
        raised = traceback.format_exc()
    history = watch.history if raised else world.history
    failed = () if raised else tuple(why for one in then if (why := one(world, history)) is not None)
    return Outcome(name, seed, world.given.rules.mode, world, history, failed, tuple(watch.found), raised)


def _play(world: SimWorld, when: tuple[When, ...], until: float) -> None:
    for one in when:
        world.time.at(one.at, lambda one=one: one.do(world))  # type: ignore[misc]
    world.begin()
    world.run_until(until, lambda: world.code is not None)
    if world.code is not None:
        world.run_until(min(until, world.time.now + ENOUGH_S))


def crash_points(scenario: Scenario, seed: int = 0, mode: str | None = None) -> int:
    """How many boundaries a controller passes in it, counted in one run in which it does not die."""
    counting = Points()
    tell(scenario, seed, mode=mode, points=counting)
    return counting.passed


def killed_at_each(
    scenario: Scenario,
    seed: int = 0,
    mode: str | None = None,
    *,
    step: int = 1,
    begin: int = 0,
    plant: Plant | None = None,
) -> list[Death]:
    """The same story, with the controller killed at one boundary after the other; `step`: only each so-manyth.

    The story is played once, and its world forked at each boundary: half the work, and the same bytes as from the start.
    """
    points = Branching(range(begin, sys.maxsize, step))

    def play() -> bytes:
        outcome = tell(scenario, seed, mode=mode, points=points, plant=plant)
        why = [*outcome.why(), *([outcome.raised] if outcome.raised else [])]
        if not points.hit:
            why.append("the controller did not die")
        return json.dumps([points.hit, why]).encode()

    in_copies(points, play)
    return [_death(point, said) for point, said in points.told.items()]


def _death(point: int, said: bytes) -> Death:
    try:
        hit, why = json.loads(said)
    except ValueError:
        return Death(point, "", (f"the copy of the world broke: {said.decode(errors='replace') or 'no word'}",))
    return Death(point, " ".join(hit), tuple(why))
