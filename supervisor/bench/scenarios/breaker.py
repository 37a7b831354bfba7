"""Three of eight nodes are lost at once. That is not three bad nodes: a person is asked."""

from supervisor.bench.words import asked, at, attempts, incidents, lose
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=4, person=Person(answers_s=None)),
    "when": (at("09:05", lose(slot=1), lose(slot=2), lose(slot=3)),),
    "then": (
        attempts(1),
        asked(),
        incidents(1),
    ),
    "until": "09:25",
    "modes": ("auto",),
}
