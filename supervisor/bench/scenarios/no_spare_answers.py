"""No look at the only spare ever ends. Unknown is not healthy: it takes no slot, and the halt says what it did not do."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, halted, looks_hang, lose
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=1),
    "when": (
        at("09:04", looks_hang("n0008")),
        at("09:05", lose(slot=4)),
    ),
    "then": (
        halted(Reason.NO_SPARE),
        attempts(1),
    ),
    "until": "09:12",
}
