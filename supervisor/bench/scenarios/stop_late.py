"""Slurm takes half a minute to stop a step. Nothing is launched beside it."""

from supervisor.bench.words import at, attempts, incidents, late_requests, rank_dies, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04:59", late_requests("stop", 30.0)),
        at("09:05", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        attempts(2),
        trains(),
    ),
    "until": "09:15",
}
