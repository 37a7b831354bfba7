"""One rank stands still and says nothing; the others wait for it in a collective."""

from policies.facts import FaultClass
from supervisor.bench.words import at, barred, fault, rank_sticks, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:05", rank_sticks(5)),),
    "then": (
        fault(FaultClass.STALL),
        barred("n0005"),
        swapped(5, "n0005", "n0008"),
        trains(),
    ),
    "until": "09:12",
}
