"""An administrator drains a node of the run, and there is no spare: the run saves, and goes on in the next job without it."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import advances, at, attempts, barred, drain, drained_by, incidents, swapped
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0, allocation=Allocation(pool=1)),
    "when": (at("09:05", drain("n0004")),),
    "then": (
        incidents(0),
        barred(),
        drained_by("n0004", "admin"),
        swapped(4, "n0004", "n0008"),
        jobs(2, 1),
        attempts(2),
        advances(),
    ),
    "until": "09:20",
    "modes": ("auto",),
}
