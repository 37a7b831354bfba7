"""The controller dies at a boundary of every scenario; the next one has the journal's bytes and nothing else.

Here each scenario is killed at a few boundaries; `relight bench prove` and RELIGHT_ALL_POINTS=1 take all of them.
"""

from __future__ import annotations

import os

import pytest

from policies.history import History
from supervisor.bench.simulate import Scenario, crash_points, every, killed_at_each, tell
from supervisor.bench.world.points import Branching, in_copies
from supervisor.bench.world.world import Plant

STORIES = [one for one in every().values() if one.killed]
SAMPLES = 3


@pytest.mark.parametrize("scenario", STORIES, ids=lambda s: s.name)
def test_it_may_die_anywhere(scenario: Scenario) -> None:
    mode = scenario.modes[0]
    count = crash_points(scenario, mode=mode)
    step = 1 if os.environ.get("RELIGHT_ALL_POINTS") else max(1, count // SAMPLES)
    begin = 0 if step == 1 else sum(scenario.name.encode()) % step  # other boundaries in each scenario
    deaths = killed_at_each(scenario, mode=mode, step=step, begin=begin)
    assert [one.point for one in deaths] == list(range(begin, count, step))
    assert not [one for one in deaths if one.why]


def test_a_copy_of_the_world_goes_on_as_one_from_the_start() -> None:
    """Forking is only quicker: the same journal, the same boundaries, whether the world was forked or played from the start."""
    scenario = every()["ten-forty"]
    point = crash_points(scenario) // 2
    points = Branching(range(point, point + 1))

    def play() -> bytes:
        return repr(tell(scenario, points=points).history).encode()

    in_copies(points, play)
    assert points.told[point].decode() == repr(tell(scenario, kills=frozenset({point})).history)


class Stumbles(Plant):
    def recall(self, history: History) -> History:
        if history.attempts:
            raise AssertionError("planted")
        return history


def test_what_goes_wrong_after_a_death_is_told() -> None:
    """A planted fault that only the second controller meets."""
    deaths = killed_at_each(every()["ten-forty"], step=40, plant=Stumbles())
    assert len(deaths) > 3
    assert all("planted" in one.why[0] for one in deaths if one.point > 40)


def test_a_run_that_was_stopped_as_planned_stays_stopped() -> None:
    """The controller dies between "stopped" and the release of the nodes: its successor lets them go, and starts nothing."""
    scenario = every()["planned-stop"]
    deaths = killed_at_each(scenario, begin=crash_points(scenario) - 12)
    assert len(deaths) == 12
    assert not [one for one in deaths if one.why]
