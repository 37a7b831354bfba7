"""In mode approve a node is lost and no spare is left: it halts and names the command. A person gives it, and it goes on."""

from supervisor.bench.job_words import jobs
from supervisor.bench.words import asked, at, attempts, barred, incidents, lose, person, swapped, trains
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0, allocation=Allocation(pool=1)),
    "when": (
        at("09:05", lose(slot=2)),
        at("09:15", person("stop", "new nodes", next_job=True)),
    ),
    "then": (
        incidents(1),
        barred("n0002"),
        asked(1),
        swapped(2, "n0002", "n0008"),
        jobs(2, 1),
        attempts(2),
        trains(),
    ),
    "until": "09:30",
    "modes": ("approve",),
}
