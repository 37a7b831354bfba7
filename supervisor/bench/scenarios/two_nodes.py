"""Two servers of one rack drop at once."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, barred, fault, incidents, lose, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:05", lose(slot=2), lose(slot=5)),),
    "then": (
        incidents(1),
        fault(FaultClass.NODE_LOST),
        barred("n0002", "n0005"),
        attempts(2),
        trains(),
    ),
    "until": "09:12",
}
