"""The controller is killed while all is well, and again in the middle of an incident."""

from supervisor.bench.words import at, attempts, barred, incidents, kill_controller, lose, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:03", kill_controller()),
        at("09:05", lose(slot=4)),
        at("09:05:13", kill_controller()),
        at("09:05:16", kill_controller()),
    ),
    "then": (
        incidents(1),
        barred("n0004"),
        attempts(2),
        trains(),
    ),
    "until": "09:12",
}
