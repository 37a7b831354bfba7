"""The agent of the first spare beats, and never ends its look at the node. It is waited for no longer than `node.check_s`; then
the second spare takes the slot.
"""

from supervisor.bench.words import at, attempts, barred, looks_hang, lose, swapped, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04", looks_hang("n0008")),
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
