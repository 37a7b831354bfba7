"""An administrator drains a node of the run, and there is a spare: the run saves, moves that one slot, and goes on in its job."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import advances, at, attempts, barred, drain, drained_by, incidents, swapped
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=1, allocation=Allocation()),
    "when": (at("09:05", drain("n0004")),),
    "then": (
        incidents(0),
        barred(),
        drained_by("n0004", "admin"),
        swapped(4, "n0004", "n0008"),
        jobs(1, 0),
        attempts(2),
        advances(),
    ),
    "until": "09:15",
    "modes": ("auto",),
}
