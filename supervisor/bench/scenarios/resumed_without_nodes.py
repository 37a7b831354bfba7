"""A person halts the run, and resumes it when somebody has drained its nodes. It says what is missing, and halts again."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, drain, halted, incidents, person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0),
    "when": (
        at("09:05", person("halt", "smoke in the hall")),
        at("09:06", drain("n0001"), drain("n0003")),
        at("09:07", person("resume", "no smoke after all")),
    ),
    "then": (
        incidents(0),
        attempts(1),
        halted(Reason.NO_SPARE),
    ),
    "until": "09:12",
}
