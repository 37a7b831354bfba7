"""The person on call wants the other spare, and approves that plan."""

from supervisor.bench.words import asked, at, lose, swapped, trains
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job
from supervisor.journal.requests import Request

STORY = {
    "given": Given(
        job=Job(save_every=30),
        rules=profile("approve"),
        person=Person(changes=Request("00000000000000-00000000", "choose", "li.wei", 0.0, spares=("n0009",))),
    ),
    "when": (at("09:05", lose(slot=4)),),
    "then": (
        swapped(4, "n0004", "n0009"),
        asked(2),
        trains(),
    ),
    "until": "09:15",
    "modes": ("approve",),
}
