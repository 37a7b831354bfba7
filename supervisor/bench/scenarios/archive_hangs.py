"""The archive does not answer for an hour, and nothing waits for it: not the seals, not a recovery from the store."""

from policies.reasons import Reason
from supervisor.bench.words import (
    archive_hangs,
    at,
    attempts,
    from_save_of,
    incidents,
    rank_dies,
    restored,
    told,
    trains,
)
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True),
    "when": (
        at("09:00:30", archive_hangs(3600)),
        at("09:05", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        attempts(2),
        from_save_of("09:04:30"),
        restored(0),
        told(Reason.ARCHIVE_BLIND, 0),
        trains(),
    ),
    "until": "09:12",
}
