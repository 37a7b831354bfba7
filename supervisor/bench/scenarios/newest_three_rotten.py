"""All three saves in the store have rotted. Each is found out as it is made ready, and the copy in the archive is good."""

from supervisor.bench.words import all_rot, at, attempts, from_save_of, rank_dies, restored, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True),
    "when": (
        at("09:05", all_rot()),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        attempts(2),
        restored(),
        from_save_of("09:01"),
        trains(),
    ),
    "until": "09:14",
}
