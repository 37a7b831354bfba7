"""All ranks stand still twice and nothing points at anybody. Once it restarts in place, then a person is asked."""

from supervisor.bench.words import all_stick, asked, at, attempts, barred
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), person=Person(answers_s=None)),
    "when": (
        at("09:05", all_stick()),
        at("09:09", all_stick()),
    ),
    "then": (
        barred(),
        attempts(2),
        asked(),
    ),
    "until": "09:25",
    "modes": ("auto",),
}
