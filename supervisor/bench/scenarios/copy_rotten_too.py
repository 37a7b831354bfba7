"""The store is gone and the newest copy in the archive has rotted: it is refused as it comes back, and the one before is used."""

from supervisor.bench.words import (
    at,
    attempts,
    from_save_of,
    newest_copy_rots,
    rank_dies,
    restored,
    store_lost,
    trains,
)
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True, rules=profile(checkpoint={"archive_every_s": 60})),
    "when": (
        at("09:05", store_lost(), newest_copy_rots()),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        attempts(2),
        restored(),
        from_save_of("09:02"),
        trains(),
    ),
    "until": "09:16",
}
