"""The time limit of the job is reached twice. Each time the run saves, and trains on in its next job: no fault, no strike."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import advances, attempts, barred, incidents, redone_minutes, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation(ends_s=1500)),
    "when": (),
    "then": (
        incidents(0),
        jobs(3, 2),
        attempts(3),
        same_slots(),
        barred(),
        redone_minutes(0, 0),
        advances(),
    ),
    "until": "09:45",
    "modes": ("auto",),
}
