"""The person on call types a wrong digest first."""

from supervisor.bench.words import asked, at, lose, refused_requests, swapped, trains
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("approve"), person=Person(wrong_first=True)),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        swapped(4, "n0004", "n0008"),
        refused_requests(),
        asked(),
        trains(),
    ),
    "until": "09:15",
    "modes": ("approve",),
}
