"""A lost node is repaired, and a person lifts its bar: it comes back through a check, as the spare that the next loss needs."""

from supervisor.bench.job_words import on
from supervisor.bench.words import at, attempts, back, barred, drained_by, lose, person, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=1),
    "when": (
        at("09:05", lose(slot=4)),
        at("09:06", back("n0004")),
        at("09:08", person("unbar", "board replaced", nodes=("n0004",))),
        at("09:10", lose(slot=2)),
    ),
    "then": (
        attempts(3),
        on("n0000", "n0001", "n0004", "n0003", "n0008", "n0005", "n0006", "n0007"),
        barred("n0002"),
        drained_by("n0004", ""),
        trains(),
    ),
    "until": "09:20",
}
