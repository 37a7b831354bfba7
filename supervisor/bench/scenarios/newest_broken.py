"""The bytes of the newest checkpoint are not what was sealed. It is condemned, and the one before is used."""

from supervisor.bench.words import at, attempts, from_save_of, newest_rots, rank_dies, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", newest_rots()),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        attempts(2),
        from_save_of("09:03:30"),
        trains(),
    ),
    "until": "09:12",
}
