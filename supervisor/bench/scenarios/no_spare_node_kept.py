"""A node fails twice and no spare is left: halt. A person has looked at the node, keeps it, and the run goes on with it."""

from supervisor.bench.words import at, attempts, curse, person, same_slots, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0),
    "when": (
        at("09:01", curse("rank-dies", node="n0005", steps=40, times=2)),
        at("09:08", person("resume", "its cable was reseated", keep=("n0005",))),
    ),
    "then": (
        attempts(3),
        same_slots(),
        trains(),
    ),
    "until": "09:15",
}
