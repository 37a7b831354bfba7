"""The shared file system fills up. A person is told once, nothing is stopped or deleted, and the next save still finds room."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, incidents, room_left, told
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04", room_left(1.05)),
        at("09:08", room_left(50)),
        at("09:12", room_left(0.5)),
    ),
    "then": (
        told(Reason.NO_ROOM, 1),
        incidents(0),
        attempts(1),
    ),
    "until": "09:16",
}
