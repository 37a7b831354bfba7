"""The store is gone, and the archive can't be read for ten minutes. The run waits and a person is told; then it goes on."""

from policies.reasons import Reason
from supervisor.bench.words import (
    archive_away,
    at,
    attempts,
    incidents,
    rank_dies,
    restored,
    store_lost,
    told,
    trains,
    waited,
)
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True),
    "when": (
        at("09:05", store_lost(), archive_away(600)),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        attempts(2),
        restored(),
        told(Reason.ARCHIVE_BLIND, 1),
        waited(Reason.ARCHIVE_BLIND, 590, 700),
        trains(),
    ),
    "until": "09:24",
}
