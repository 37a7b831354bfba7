"""The plan is made with a spare; the spare dies before the launch. The next spare takes the slot."""

from supervisor.bench.words import at, lose, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), view_s=20.0),
    "when": (
        at("09:05", lose(slot=4)),
        at("09:05:20", lose(node="n0008")),
    ),
    "then": (
        swapped(4, "n0004", "n0009"),
        trains(),
    ),
    "until": "09:12",
}
