"""Slurm's controller restarts while a rank dies: for some seconds it has heard of no node. Nobody is lost, nobody is swapped."""

from policies.facts import FaultClass
from supervisor.bench.words import (
    at,
    attempts,
    barred,
    cluster_restarts,
    fault,
    incidents,
    rank_dies,
    same_slots,
    trains,
)
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=60)),
    "when": (
        at("09:05:50", cluster_restarts(10, 15)),
        at("09:05:52", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        fault(FaultClass.RANK_DIED),
        attempts(2),
        same_slots(),
        barred(),
        trains(),
    ),
    "until": "09:12",
}
