"""A rank dies; while the next attempt is on its way to the old frontier a node is lost. The second incident follows the first."""

from supervisor.bench.words import at, barred, lose, rank_dies, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=60)),
    "when": (
        at("09:05:50", rank_dies(3)),
        at("09:06:40", lose(slot=6)),
    ),
    "then": (
        barred("n0006"),
        swapped(6, "n0006", "n0008"),
        trains(),
    ),
    "until": "09:18",
}
