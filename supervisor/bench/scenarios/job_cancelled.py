"""Somebody cancels the job. The run ends with it, and nothing is started again."""

from supervisor.bench.job_words import ended, job_cancelled, jobs
from supervisor.bench.words import at, attempts, barred, incidents
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation(pool=1)),
    "when": (at("09:05", job_cancelled()),),
    "then": (
        incidents(0),
        barred(),
        jobs(1, 0),
        attempts(1),
        ended("stopped"),
    ),
    "until": "09:15",
    "modes": ("auto", "approve", "observe"),
}
