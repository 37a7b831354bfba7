"""The run has left its job and awaits the next. Somebody cancels that: the run is over, and nothing brings it back by itself."""

from supervisor.bench.job_words import ended, job_cancelled, job_ends, jobs
from supervisor.bench.words import at, attempts, exit_code, incidents
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation(waits_s=600)),
    "when": (
        at("09:05", job_ends("09:10")),
        at("09:08", job_cancelled()),
    ),
    "then": (
        incidents(0),
        jobs(1, 1),
        attempts(1),
        ended("stopped"),
        exit_code(0),
    ),
    "until": "09:20",
    "modes": ("auto",),
}
