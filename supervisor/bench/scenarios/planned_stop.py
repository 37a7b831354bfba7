"""A person asks for a save and a stop. No fault, no strike."""

from supervisor.bench.words import at, attempts, exit_code, incidents, person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:03:10", person("stop")),),
    "then": (
        incidents(0),
        attempts(1),
        exit_code(0),
    ),
    "until": "09:10",
    "modes": ("auto", "approve", "observe"),
}
