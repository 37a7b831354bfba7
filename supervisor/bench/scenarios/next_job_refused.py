"""Slurm says no to the next job for some minutes. A person is told, it is asked again, and the run goes on."""

from supervisor.bench.job_words import job_ends, jobs, next_job_refused
from supervisor.bench.words import advances, at, attempts, incidents, same_slots, told
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation()),
    "when": (
        at("09:04", next_job_refused(240)),
        at("09:05", job_ends("09:15")),
    ),
    "then": (
        incidents(0),
        told("next-job", 1),
        jobs(2, 1),
        attempts(2),
        same_slots(),
        advances(),
    ),
    "until": "09:25",
    "modes": ("auto",),
}
