"""A node is lost and no spare is left. The incident goes on in the next job, with a node of the pool."""

from policies.facts import FaultClass
from supervisor.bench.job_words import jobs
from supervisor.bench.words import at, attempts, barred, fault, incidents, lose, swapped, trains
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0, allocation=Allocation(pool=1)),
    "when": (at("09:05", lose(slot=2)),),
    "then": (
        incidents(1),
        fault(FaultClass.NODE_LOST),
        barred("n0002"),
        swapped(2, "n0002", "n0008"),
        jobs(2, 1),
        attempts(2),
        trains(),
    ),
    "until": "09:20",
    "modes": ("auto",),
}
