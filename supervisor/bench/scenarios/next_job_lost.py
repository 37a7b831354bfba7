"""The request for the next job is lost once, and Slurm is away as it is asked again. The job is followed once."""

from supervisor.bench.job_words import job_ends, jobs
from supervisor.bench.words import advances, at, attempts, cluster_away, incidents, lose_requests, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation()),
    "when": (
        at("09:05", lose_requests("next-job"), job_ends("09:15")),
        at("09:05:40", cluster_away(60)),
    ),
    "then": (
        incidents(0),
        jobs(2, 1),
        attempts(2),
        same_slots(),
        advances(),
    ),
    "until": "09:25",
    "modes": ("auto",),
}
