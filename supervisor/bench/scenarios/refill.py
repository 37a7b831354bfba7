"""A node is lost and its spare takes the slot. The profile wants a spare in hand: the run saves and goes on in the next job."""

from supervisor.bench.job_words import jobs, on
from supervisor.bench.words import advances, at, attempts, barred, incidents, lose
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(
        job=Job(save_every=30),
        spares=1,
        rules=profile("auto", spares={"low": 1}),
        allocation=Allocation(pool=2),
    ),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        incidents(1),
        barred("n0004"),
        jobs(2, 1),
        attempts(3),
        on("n0000", "n0001", "n0002", "n0003", "n0008", "n0005", "n0006", "n0007"),
        advances(),
    ),
    "until": "09:20",
    "modes": ("auto",),
}
