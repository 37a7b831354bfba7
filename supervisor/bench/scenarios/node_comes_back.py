"""A lost node is repaired. When its bar's time is over it comes back through a check, and the drain that was ours is lifted."""

from supervisor.bench.words import at, back, barred, drained_by, lose, swapped, trains
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("auto", quarantine={"bar_s": 240})),
    "when": (
        at("09:05", lose(slot=4)),
        at("09:06", back("n0004")),
    ),
    "then": (
        swapped(4, "n0004", "n0008"),
        barred(),
        drained_by("n0004", ""),
        trains(),
    ),
    "until": "09:15",
}
