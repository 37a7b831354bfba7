"""The administrator has drained the first spare. It is left alone; the second takes the slot."""

from supervisor.bench.words import at, barred, drain, lose, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04", drain("n0008")),
        at("09:05", lose(slot=4)),
    ),
    "then": (
        swapped(4, "n0004", "n0009"),
        barred("n0004"),
        trains(),
    ),
    "until": "09:12",
}
