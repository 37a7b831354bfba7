"""A test cluster of Slurm, started once for a file of tests, and who reads it."""

import os
from collections.abc import Iterator

import pytest
from slurm_world import python_of

from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    root = os.environ.get("RELIGHT_SLURM_ROOT", "")  # another Debian with another Slurm
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    # No shorter: one round of pings takes twice the message timeout while a node hangs, and a node that is well but was
    # not asked for longer than slurmd's timeout is declared down (seen on 24.11).
    with SlurmBed(Shape(nodes=6, slurmd_timeout_s=12, message_timeout_s=4, switches=3), root) as bed:
        yield bed


@pytest.fixture(params=["commands", "pyslurm"])
def python(request, bed) -> str:
    """Who reads: the commands, for which no Python is needed, or pyslurm in that one."""
    return python_of(request.param, bed)
