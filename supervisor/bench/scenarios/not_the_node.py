"""A rank dies in the same slot again and again, whichever node holds it. After the swap a person is asked: it is not the node."""

from supervisor.bench.words import asked, at, attempts, barred, curse
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), person=Person(answers_s=None)),
    "when": (at("09:01", curse("rank-dies", slot=5, steps=40, words=("RuntimeError: tensor shapes differ",))),),
    "then": (
        barred("n0005"),
        attempts(3),
        asked(),
    ),
    "until": "09:25",
    "modes": ("auto",),
}
