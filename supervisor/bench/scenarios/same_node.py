"""A rank dies on the same node twice. The first time it restarts in place; the second time the node is barred."""

from supervisor.bench.words import at, attempts, barred, curse, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:01", curse("rank-dies", node="n0005", steps=40, times=2)),),
    "then": (
        barred("n0005"),
        swapped(5, "n0005", "n0008"),
        attempts(3),
        trains(),
    ),
    "until": "09:15",
}
