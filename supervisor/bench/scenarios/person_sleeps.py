"""The person on call sleeps. Nothing is started without a word of theirs."""

from supervisor.bench.words import asked, at, attempts, incidents, lose
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("approve"), person=Person(answers_s=None)),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        attempts(1),
        asked(),
        incidents(1),
    ),
    "until": "09:30",
    "modes": ("approve",),
}
