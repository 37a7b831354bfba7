"""The whole store is gone when a rank dies. The copy in the archive comes back, is proved, and the run goes on from it."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, fault, from_save_of, incidents, rank_dies, restored, store_lost, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True),
    "when": (
        at("09:05", store_lost()),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        fault(FaultClass.RANK_DIED),
        attempts(2),
        restored(),
        from_save_of("09:01"),
        trains(),
    ),
    "until": "09:14",
}
