"""A node stands still for two seconds. Nobody is blamed, nothing is restarted."""

from supervisor.bench.words import at, attempts, barred, freeze, incidents, thaw, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", freeze(slot=3)),
        at("09:05:02", thaw("n0003")),
    ),
    "then": (
        incidents(0),
        barred(),
        attempts(1),
        trains(),
    ),
    "until": "09:12",
}
