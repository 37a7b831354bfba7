"""The reference trainer on a real Slurm, submitted with `relight sbatch`: its ranks, nodes, controllers and slurmctld are hurt.

Eight slots and three hot spares; `slurm_jobs.py` has what happens to its job.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed import job_strikes, strikes
from supervisor.bench.slurmbed.cases import SHAPE, Case, prove_all

CASES: dict[str, Case] = {
    "rank killed": Case(strikes.rank_killed),
    "node crash": Case(strikes.node_crash, swapped=1),
    "node hang": Case(strikes.node_hang, swapped=1),
    # Its tasks go on, and may reach the end before anything is missed of them.
    "stepd killed": Case(strikes.stepd_killed, (0, 1)),
    # Two nodes are lost one after the other: by then the first loss may have been answered.
    "two nodes": Case(strikes.two_nodes, (1, 2), 2),
    "dead spare": Case(strikes.dead_spare, (1, 2), 1),
    "same node twice": Case(strikes.same_node_twice, (2,), 1),
    "controller killed": Case(strikes.controller_killed, (0,)),
    "controllers killed in training": Case(strikes.controllers_killed_training, (0,)),
    "controllers killed in a recovery": Case(strikes.controllers_killed_recovering),
    "slurmctld away": Case(strikes.slurmctld_away),
    "slurmctld away for a minute in a recovery": Case(strikes.slurmctld_away_long),
    "slurmctld away for a minute in training": Case(
        strikes.slurmctld_away_training, (0,), shape=replace(SHAPE, steps=80, extra=("--step-seconds", "1.0"))
    ),
    "slurmctld restarted": Case(strikes.slurmctld_restarted),
    "batch host": Case(strikes.batch_host, swapped=1, outside=True),
    "node crash, approved": Case(job_strikes.crash_approved, swapped=1, rules='mode = "approve"\n'),
    "node crash, without rights": Case(strikes.node_crash, swapped=1, rights=False),
}


def prove(work: Work) -> None:
    """Every case."""
    prove_all(work, CASES)
