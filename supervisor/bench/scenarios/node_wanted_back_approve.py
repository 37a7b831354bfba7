"""In mode approve an administrator drains a node of the run: a person is told, once, and the run is not touched."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import advances, at, attempts, drain, drained_by, incidents, told
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=1, allocation=Allocation()),
    "when": (at("09:05", drain("n0004")),),
    "then": (
        incidents(0),
        told("node-drained", 1),
        drained_by("n0004", "admin"),
        jobs(1, 0),
        attempts(1),
        advances(),
    ),
    "until": "09:15",
    "modes": ("approve",),
}
