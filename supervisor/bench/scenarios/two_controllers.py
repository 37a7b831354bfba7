"""A second controller is started while the first still runs, and once more in an incident. The older one ends."""

from supervisor.bench.words import at, attempts, incidents, rank_dies, same_slots, second_controller, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:03", second_controller()),
        at("09:05", rank_dies(5)),
        at("09:05:01", second_controller()),
    ),
    "then": (
        incidents(1),
        attempts(2),
        same_slots(),
        trains(),
    ),
    "until": "09:12",
}
