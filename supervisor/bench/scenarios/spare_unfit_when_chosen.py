"""A GPU of the first spare has broken and nobody has noticed. Its look at itself before it takes the slot finds that; the second
spare takes it.
"""

from supervisor.bench.words import at, attempts, barred, falls_ill, lose, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04", falls_ill("n0008")),
        at("09:05", lose(slot=4)),
    ),
    "then": (
        attempts(2),
        swapped(4, "n0004", "n0009"),
        barred("n0004"),
        trains(),
    ),
    "until": "09:12",
}
