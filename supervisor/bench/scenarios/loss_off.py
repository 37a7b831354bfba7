"""After the recovery the losses are off those of before, and after the next one again. It halts."""

from policies.reasons import Reason
from supervisor.bench.words import at, curse, halted, rank_dies
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", curse("off", by=0.05)),
        at("09:05:01", rank_dies(3)),
    ),
    "then": (halted(Reason.LOSS_OFF),),
    "until": "09:25",
}
