"""The next job waits for three hours until there are nodes. Then the run goes on in it, and waits for its agents."""

from supervisor.bench.job_words import job_ends, jobs
from supervisor.bench.words import advances, at, attempts, incidents, redone_minutes, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation(waits_s=10_800)),
    "when": (at("09:05", job_ends("09:15")),),
    "then": (
        incidents(0),
        jobs(2, 1),
        attempts(2),
        same_slots(),
        redone_minutes(0, 0),
        advances(),
    ),
    "until": "12:15",
    "modes": ("auto",),
}
