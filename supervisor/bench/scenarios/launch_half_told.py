"""Half of the nodes never hear of a launch. They are told again, by the same name; nothing starts twice."""

from supervisor.bench.words import at, attempts, incidents, lose_requests, rank_dies, same_slots, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04:59", lose_requests("launch-half")),
        at("09:05", rank_dies(3)),
    ),
    "then": (
        incidents(1),
        attempts(2),
        same_slots(),
        trains(),
    ),
    "until": "09:12",
}
