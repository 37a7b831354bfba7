"""A node stands still; it is barred, and the run goes on without it. Then it thaws, with its old ranks."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, barred, fault, freeze, incidents, swapped, thaw, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:05", freeze(slot=3)),
        at("09:08", thaw("n0003")),
    ),
    "then": (
        incidents(1),
        fault(FaultClass.NODE_SILENT),
        barred("n0003"),
        swapped(3, "n0003", "n0008"),
        attempts(2),
        trains(),
    ),
    "until": "09:12",
}
