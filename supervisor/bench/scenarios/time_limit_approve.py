"""In mode approve a person is told an hour before the job ends. The run saves and stops in time, and nothing follows by itself."""

from supervisor.bench.job_words import ended, jobs, saved_last
from supervisor.bench.words import attempts, exit_code, incidents, told
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation(ends_s=5400)),
    "when": (),
    "then": (
        incidents(0),
        told("job-ends", 1),
        jobs(1, 0),
        attempts(1),
        saved_last(),
        ended("stopped"),
        exit_code(0),
    ),
    "until": "10:40",
    "modes": ("approve",),
}
