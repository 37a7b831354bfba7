"""A save was begun and is not written for far longer than the ones before. A person is told once; nothing is stopped."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, incidents, saves_never_end, told, trains
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=60), rules=profile("auto")),
    "when": (at("09:13", saves_never_end()),),
    "then": (
        told(Reason.SAVE_UNFINISHED, 1),
        incidents(0),
        attempts(1),
        trains(),
    ),
    "until": "09:40",
}
