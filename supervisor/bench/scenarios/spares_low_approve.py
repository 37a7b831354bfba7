"""In mode approve the last spare takes the slot of a lost node. A person is told that none is left, and the run trains on."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import at, attempts, barred, incidents, lose, told, trains
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(
        job=Job(save_every=30),
        spares=1,
        rules=profile("approve", spares={"low": 1}),
        allocation=Allocation(pool=2),
    ),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        incidents(1),
        barred("n0004"),
        told("spares-low", 1),
        jobs(1, 0),
        attempts(2),
        trains(),
    ),
    "until": "09:20",
    "modes": ("approve",),
}
