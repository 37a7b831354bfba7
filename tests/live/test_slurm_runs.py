"""The reference trainer under `relight run` on a real Slurm: one case of each kind; the others are in `relight bench prove slurm`.

A lost node is in test_slurm_barring.py.
"""

import pytest

pytest.importorskip("torch")
from supervisor.bench.proofs import slurm, slurm_jobs
from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed import cases
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

CASES = slurm.CASES | slurm_jobs.CASES

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),  # twelve nodes at once are enough for one machine
]


@pytest.mark.parametrize("case", ["slurmctld away", "batch host"])
def test_a_run_survives(case, calm, tmp_path):
    work = Work("slurm", str(tmp_path), tell=lambda _: None)
    with SlurmBed(Shape(nodes=cases.NODES)) as bed:
        cases.survive(work, bed, case, CASES[case], calm)
    assert work.ok, work.checks


def test_a_killed_rank_and_other_bits_are_seen(calm, tmp_path):
    work = Work("slurm", str(tmp_path), tell=lambda _: None)
    with SlurmBed(Shape(nodes=cases.NODES)) as bed:
        cases.survive(work, bed, "rank killed", CASES["rank killed"], calm[::-1])
    assert [name for name, held in work.checks.items() if not held] == ["rank killed: the same bits"]
