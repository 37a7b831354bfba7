"""What the tests on a real Slurm compare with."""

from dataclasses import replace

import pytest

from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed import cases, install


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of a run that nobody touches, and no Slurm: how many ranks a node has, or how long a step takes, changes no bits."""
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    work = Work("calm", str(tmp_path_factory.mktemp("calm")), tell=lambda _: None)
    return undisturbed(work, replace(cases.SHAPE, spares=0, extra=()))
