"""The ends and the last words of 7 ranks arrive a minute late, when the next attempt runs. They open no second incident."""

from supervisor.bench.words import at, attempts, barred, incidents, late_messages, lose, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:04", late_messages("exit", 60.0), late_messages("finding", 60.0)),
        at("09:05", lose(slot=4)),
    ),
    "then": (
        incidents(1),
        barred("n0004"),
        attempts(2),
        trains(),
    ),
    "until": "09:12",
}
