"""How steps are launched on a real Slurm: one task a node below torchrun; the others are in `relight bench prove slurm_launching`."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")
from supervisor.bench.proofs import slurm_launching
from supervisor.bench.proofs.runs import undisturbed
from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The hash of a run that nobody touches, and no Slurm."""
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    work = Work("calm", str(tmp_path_factory.mktemp("calm")), tell=lambda _: None)
    return undisturbed(work, replace(slurm_launching.SHAPE, spares=0))


def test_a_run_below_torchrun_survives(calm, tmp_path):
    work = Work("slurm", str(tmp_path), tell=lambda _: None)
    with SlurmBed(Shape(nodes=slurm_launching.NODES)) as bed:
        slurm_launching.CASES["torchrun"](work, bed, calm)
    assert work.ok, work.checks
