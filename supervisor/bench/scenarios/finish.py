"""The training reaches its end. The last save is sealed, the nodes are let go, exit 0."""

from supervisor.bench.words import at, attempts, exit_code, incidents, kill_controller
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30, steps=120)),
    "when": (at("09:03", kill_controller()),),
    "then": (
        incidents(0),
        attempts(1),
        exit_code(0),
    ),
    "until": "09:10",
}
