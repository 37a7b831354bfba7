"""The nodes' clocks are up to two minutes apart. Rank 6 fails first, the others later; the earliest error is found."""

from supervisor.bench.words import at, attempts, earliest, incidents, rank_raises, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), skew_s=120.0),
    "when": (at("09:05", rank_raises(6, "RuntimeError", "CUDA error: device-side assert triggered")),),
    "then": (
        incidents(1),
        earliest(rank=6),
        attempts(2),
        trains(),
    ),
    "until": "09:12",
}
