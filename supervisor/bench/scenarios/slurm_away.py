"""Slurm's controller is away for an hour while the run trains, and a rank dies in that hour. It waits, then it recovers."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, barred, cluster_away, fault, incidents, rank_dies, same_slots, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=300)),
    "when": (
        at("09:20", cluster_away(3600)),
        at("09:40", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        fault(FaultClass.RANK_DIED),
        attempts(2),
        same_slots(),
        barred(),
        trains(),
    ),
    "until": "10:50",
}
