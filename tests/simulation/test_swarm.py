"""Worlds drawn from seeds: no promise is broken, and when the faults stop the run makes updates or says why not."""

from __future__ import annotations

import pytest

from supervisor.bench.swarm import ARCHIVE_FAULTS, FAULTS, SPARE_FAULTS, draw, swarm_one
from supervisor.bench.swarm_jobs import JOB_FAULTS


@pytest.mark.parametrize("first", range(0, 200, 10))
def test_ten_seeds(first: int) -> None:
    bad = {seed: why for seed in range(first, first + 10) if (why := swarm_one(seed).why())}
    assert bad == {}


def test_the_seeds_draw_every_fault() -> None:
    drawn = {name for seed in range(120) for _, name in draw(seed).faults}
    assert drawn == {*FAULTS, *ARCHIVE_FAULTS, *SPARE_FAULTS, *JOB_FAULTS}


@pytest.mark.parametrize("seed", [170, 10484, 10688, 10795])
def test_seeds_that_once_failed(seed: int) -> None:
    """From a time when no world had a job."""
    assert swarm_one(seed, jobs=False).why() == []


@pytest.mark.parametrize("seed", [18, 142, 199])
def test_seeds_with_a_job_that_once_failed(seed: int) -> None:
    """18: every spare was drained on the way to one. 142: a fault behind a stop that no rank had been asked for."""
    assert swarm_one(seed).why() == []


def test_the_same_seed_draws_the_same() -> None:
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
