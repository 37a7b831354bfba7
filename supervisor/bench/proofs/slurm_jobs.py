"""The reference trainer on a real Slurm, whose job ends, is requeued, loses its spares or a node to somebody else, or is cancelled.

The run goes on in its next job, or stays stopped where somebody has wanted that.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.bench.proofs.work import Work
from supervisor.bench.slurmbed import job_strikes
from supervisor.bench.slurmbed.cases import NODES, SHAPE, SLOW, Case, prove_all

_ASKS = 'mode = "approve"\n'
_ENDS = "[job]\nleave_s = 25\ndown_s = 10\n"
CASES: dict[str, Case] = {
    "batch host, requeued": Case(job_strikes.batch_host_requeued, (0, 1), None, nodes=NODES + 1),
    "time limit": Case(job_strikes.time_limit, (0,), None, SLOW, options=("--time=1",), rules=_ENDS, jobs=3),
    "node drained": Case(job_strikes.node_drained, (0,), 1),
    "refill": Case(job_strikes.spares_spent, (1,), None, replace(SHAPE, spares=1), rules="[spares]\nlow = 1\n", jobs=2),
    "no spare left": Case(job_strikes.no_spare_left, (2,), None, replace(SHAPE, spares=1), nodes=NODES + 1, jobs=2),
    "requeued": Case(job_strikes.requeued, (0,), None),
    "next job asked for": Case(job_strikes.stop_for_next, (0,), None, jobs=2),
    "stop after a save": Case(job_strikes.stop_after_save, (0,), None, jobs=2),
    "time limit, not approved": Case(
        job_strikes.time_limit,
        (0,),
        shape=SLOW,
        options=("--time=1",),
        rules=_ASKS + _ENDS,
        finishes=False,
        state="COMPLETED",
    ),
    "refill, without rights": Case(
        job_strikes.spares_spent,
        (1,),
        None,
        replace(SHAPE, spares=1),
        nodes=NODES + 1,
        rules="[spares]\nlow = 1\n",
        rights=False,
        jobs=2,
    ),
    "cancelled": Case(job_strikes.cancelled, (0,), finishes=False, state="CANCELLED"),
    "same data twice": Case(
        job_strikes.time_limit,
        (2,),
        shape=replace(SHAPE, extra=(*SHAPE.extra, "--fail", "nan@20:3")),
        finishes=False,
        state="FAILED",
        reason="same-data",
    ),
}


def prove(work: Work) -> None:
    """Every case."""
    prove_all(work, CASES)
