"""The controller dies at a boundary of every scenario; the next one has the journal's bytes and nothing else.

Here each scenario is killed at a few boundaries; `relight bench prove` and RELIGHT_ALL_POINTS=1 take all of them.
"""

from __future__ import annotations

import os

import pytest

from supervisor.bench.simulate import Scenario, crash_points, every, killed_at_each, tell

STORIES = [one for one in every().values() if one.killed]
SAMPLES = 3


@pytest.mark.parametrize("scenario", STORIES, ids=lambda s: s.name)
def test_it_may_die_anywhere(scenario: Scenario) -> None:
    mode = scenario.modes[0]
    count = crash_points(scenario, mode=mode)
    step = 1 if os.environ.get("RELIGHT_ALL_POINTS") else max(1, count // SAMPLES)
    begin = 0 if step == 1 else sum(scenario.name.encode()) % step  # other boundaries in each scenario
    for point, outcome in killed_at_each(scenario, mode=mode, step=step, begin=begin):
        assert outcome.good, f"killed at {point} ({outcome.world.points.hit}): {outcome.why()}{outcome.raised}"
        assert len(outcome.world.lives) > 1, point


def test_every_kind_of_boundary_is_passed() -> None:
    names = set()
    for name in ("ten-forty", "newest-broken", "planned-stop"):
        names |= set(tell(every()[name]).world.points.names)
    for wanted in ("journal torn", "effect before launch", "effect after stop", "seal before outcome", "work after"):
        assert wanted in names
