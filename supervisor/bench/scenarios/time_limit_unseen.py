"""The job is killed at its time limit before anybody could know of it. The run goes on in the next one, with no strike."""

from supervisor.bench.job_words import job_killed, jobs
from supervisor.bench.words import advances, at, attempts, barred, incidents, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation()),
    "when": (at("09:05", job_killed("TIMEOUT")),),
    "then": (
        incidents(0),
        barred(),
        jobs(2, 1),
        attempts(2),
        same_slots(),
        advances(),
    ),
    "until": "09:15",
    "modes": ("auto",),
}
