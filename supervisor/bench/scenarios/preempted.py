"""A job that matters more gets the nodes in two minutes. The run saves and leaves, waits, and goes on when its job begins again."""

from supervisor.bench.job_words import jobs, preempted
from supervisor.bench.words import advances, at, attempts, incidents, redone_minutes, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation()),
    "when": (at("09:05", preempted(120)),),
    "then": (
        incidents(0),
        jobs(2, 1),
        attempts(2),
        same_slots(),
        redone_minutes(0, 0),
        advances(),
    ),
    "until": "09:15",
    "modes": ("auto",),
}
