"""A node is lost, and the spare that was to take its slot died a minute before and nobody has noticed."""

from supervisor.bench.words import at, barred, lose, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:05", lose(slot=4), lose(node="n0008")),),
    "then": (
        barred("n0004"),
        swapped(4, "n0004", "n0009"),
        trains(),
    ),
    "until": "09:12",
}
