"""The user may not drain nodes, and the controller dies between two lost nodes. The bars hold in the run alone; told once."""

from supervisor.bench.words import at, barred, kill_controller, lose, may_not_drain, told, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:00:30", may_not_drain()),
        at("09:05", lose(slot=4)),
        at("09:10", kill_controller()),
        at("09:12", lose(slot=2)),
    ),
    "then": (
        barred("n0002", "n0004"),
        told("drain-refused", 1),
        trains(),
    ),
    "until": "09:20",
}
