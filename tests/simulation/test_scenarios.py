"""Every scenario holds, tells its story, and is the same each time; and so do the seeds that once failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies.history import History
from supervisor.bench.simulate import Scenario, every, tell
from supervisor.bench.swarm import swarm_one
from supervisor.fold import fold_all
from supervisor.journal.journal import read

LARGE = {"ten-forty-large", "quiet-day"}
SMALL = sorted(set(every()) - LARGE)
ROOT = Path(__file__).parents[2]


def _runs(names: list[str]) -> list[tuple[Scenario, str]]:
    return [(every()[name], mode) for name in names for mode in every()[name].modes]


@pytest.mark.parametrize(("scenario", "mode"), _runs(SMALL), ids=lambda v: v if isinstance(v, str) else v.name)
def test_it_goes_as_it_should(scenario: Scenario, mode: str) -> None:
    outcome = tell(scenario, mode=mode)
    assert outcome.good, "\n".join([*outcome.why(), outcome.raised])
    for incident in outcome.history.incidents:
        assert f"Incident {incident.number}" in outcome.story()


@pytest.mark.parametrize("name", sorted(LARGE))
def test_at_full_size(name: str) -> None:
    """No assertion on speed: the turns are counted."""
    outcome = tell(every()[name])
    assert outcome.good, "\n".join([*outcome.why(), outcome.raised])
    assert sum(life.turns for life in outcome.world.lives) < 24 * 40


@pytest.mark.parametrize("name", ["ten-forty", "same-node", "two-controllers", "frozen-thaws"])
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    first, second = (tell(every()[name], seed=7) for _ in range(2))
    assert first.world.disk.whole() == second.world.disk.whole()
    assert first.story() == second.story()


def test_the_same_bytes_in_another_process_with_another_hash_seed() -> None:
    """Sets of names have another order there: nothing of it may reach the journal."""
    said = []
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "supervisor", "bench", "scenario", "two-nodes", "--json"]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=120)
        said.append([json.loads(line)["journal"] for line in done.stdout.splitlines()])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "name", ["ten-forty", "no-spare", "newest-broken", "planned-stop", "person-errs", "time-limit", "no-spare-next-job"]
)
def test_everything_done_twice_leaves_the_same_world(name: str) -> None:
    once, twice = (tell(every()[name], twice=again) for again in (False, True))
    assert twice.good, twice.why()
    assert once.world.disk.whole() == twice.world.disk.whole()


def test_jumping_over_quiet_hours_changes_nothing() -> None:
    scenario = every()["ten-forty"]
    given = scenario.given
    slow = tell(Scenario(scenario.name, "", given.but(jumps=False), scenario.when, scenario.then, scenario.until))
    fast = tell(scenario)
    assert slow.good
    assert sum(life.turns for life in slow.world.lives) > sum(life.turns for life in fast.world.lives)
    assert _without_times(slow.history) == _without_times(fast.history)


def _without_times(history: History) -> list[object]:
    return [(a.number, a.slots, a.checkpoint, a.last_step) for a in history.attempts] + [
        (i.number, i.fault, i.checkpoint, i.swaps, i.barred) for i in history.incidents
    ]


def test_the_journal_alone_gives_the_history() -> None:
    outcome = tell(every()["ten-forty"], kills=frozenset({100, 300}))
    assert fold_all(History(), read(outcome.world.disk)) == outcome.world.watch.history  # type: ignore[attr-defined]


def test_a_scenario_that_does_not_hold_is_told() -> None:
    right = every()["ten-forty"]
    wrong = Scenario("wrong", "", right.given, (), right.then, right.until)
    outcome = tell(wrong)
    assert not outcome.good
    assert any("0 incidents" in why for why in outcome.why())


@pytest.mark.parametrize("seed", [36, 90])
def test_seeds_that_have_found_something(seed: int) -> None:
    """36: a save was published behind the fence of a halt. 90: a run stayed down after its halt had been lifted."""
    outcome = swarm_one(seed, jobs=False)
    assert outcome.good, outcome.why()
