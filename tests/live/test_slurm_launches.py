"""How steps are launched on a real Slurm: one task a node below torchrun; the others are in `relight bench prove slurm_launching`."""

import pytest

pytest.importorskip("torch")
from supervisor.bench.proofs import slurm_launching
from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("slurm")]


def test_a_run_below_torchrun_survives(calm, tmp_path):
    work = Work("slurm", str(tmp_path), tell=lambda _: None)
    with SlurmBed(Shape(nodes=slurm_launching.NODES)) as bed:
        slurm_launching.CASES["torchrun"](work, bed, calm)
    assert work.ok, work.checks
