"""In the steps that are done again a loss is not finite, and it was before. What follows is no success."""

from supervisor.bench.words import at, curse, rank_dies, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05:10", curse("nan", at_step=110, times=1)),
        at("09:05:12", rank_dies(3)),
    ),
    "then": (trains(),),
    "until": "09:25",
}
