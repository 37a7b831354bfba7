"""The person on call answers after twenty minutes, and by then the spare of the plan has died. The old approval does not count."""

from supervisor.bench.words import asked, at, lose, refused_requests, swapped, trains
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("approve"), person=Person(answers_s=1200)),
    "when": (
        at("09:05", lose(slot=4)),
        at("09:10", lose(node="n0008")),
    ),
    "then": (
        swapped(4, "n0004", "n0009"),
        refused_requests(),
        asked(2),
        trains(),
    ),
    "until": "10:00",
    "modes": ("approve",),
}
