"""The person on call refuses the plan. The run halts until a person says what instead."""

from policies.reasons import Reason
from supervisor.bench.words import asked, at, attempts, halted, lose
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("approve"), person=Person(refuses=True)),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        halted(Reason.REFUSED),
        attempts(1),
        asked(),
    ),
    "until": "09:12",
    "modes": ("approve",),
}
