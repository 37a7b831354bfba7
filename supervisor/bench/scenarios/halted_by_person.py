"""A person halts the run, and nothing is started any more."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, halted, person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (at("09:05", person("halt", "smoke in the hall")),),
    "then": (
        halted(Reason.PERSON_HALTED),
        attempts(1),
    ),
    "until": "09:12",
}
