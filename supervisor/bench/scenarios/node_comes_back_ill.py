"""A lost node is there again, and broken. Its time is over, its checks say no: it stays barred, and its drain stands."""

from supervisor.bench.words import at, back, barred, drained_by, falls_ill, lose, swapped, trains
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("auto", quarantine={"bar_s": 240})),
    "when": (
        at("09:05", lose(slot=4)),
        at("09:05:30", falls_ill("n0004")),
        at("09:06", back("n0004")),
    ),
    "then": (
        swapped(4, "n0004", "n0008"),
        barred("n0004"),
        drained_by("n0004", "relight"),
        trains(),
    ),
    "until": "09:15",
}
