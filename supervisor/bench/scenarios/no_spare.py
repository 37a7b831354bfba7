"""A third node is lost and no spare is left: it halts, names the slot, and starts nothing."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, halted, lose
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0),
    "when": (at("09:05", lose(slot=2)),),
    "then": (
        halted(Reason.NO_SPARE),
        attempts(1),
    ),
    "until": "09:12",
}
