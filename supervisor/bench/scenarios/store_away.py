"""The shared file system hangs when a rank dies, for four minutes. Nothing is decided blindly; then it comes back."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, fault, incidents, rank_dies, same_slots, store_away, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", store_away(240)),
        at("09:05:10", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        fault(FaultClass.RANK_DIED),
        attempts(2),
        same_slots(),
        trains(),
    ),
    "until": "09:18",
}
