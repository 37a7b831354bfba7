"""Somebody has tidied up the newest checkpoint. The one before is used."""

from supervisor.bench.words import at, attempts, from_save_of, newest_vanishes, rank_dies, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", newest_vanishes()),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        attempts(2),
        from_save_of("09:03:30"),
        trains(),
    ),
    "until": "09:12",
}
