"""Somebody without the token says that a rank has died. Nobody listens."""

from supervisor.bench.words import at, attempts, incidents, stranger_speaks, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:05", stranger_speaks()),),
    "then": (
        incidents(0),
        attempts(1),
        trains(),
    ),
    "until": "09:12",
}
