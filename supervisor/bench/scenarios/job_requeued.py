"""An operator has the job requeued. The run goes on in its next start from the newest save: no incident, no strike."""

from supervisor.bench.job_words import job_requeued, jobs
from supervisor.bench.words import advances, at, attempts, barred, incidents, same_slots
from supervisor.bench.world.allocation import Allocation
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), allocation=Allocation()),
    "when": (at("09:05", job_requeued()),),
    "then": (
        incidents(0),
        barred(),
        jobs(2, 0),
        attempts(2),
        same_slots(),
        advances(),
    ),
    "until": "09:15",
}
