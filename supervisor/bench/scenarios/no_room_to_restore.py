"""The store is gone and has room for one save only. A person is told what to free; then the copy comes back."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, rank_dies, restored, room_left, store_lost, told, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True),
    "when": (
        at("09:05", store_lost(), room_left(1.2)),
        at("09:05:01", rank_dies(3)),
        at("09:09", room_left(50)),
    ),
    "then": (
        attempts(2),
        restored(),
        told(Reason.NO_ROOM, 1),
        trains(),
    ),
    "until": "09:18",
}
