"""The administrator drains a node of the run for later. The run is not touched."""

from supervisor.bench.words import at, attempts, drain, incidents, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:04", drain("n0004")),),
    "then": (
        incidents(0),
        attempts(1),
        trains(),
    ),
    "until": "09:12",
}
