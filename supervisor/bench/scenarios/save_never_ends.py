"""A save was begun and never ends. After its limit the run is taken back to the last completed one."""

from policies.facts import FaultClass
from supervisor.bench.words import at, attempts, barred, fault, saves_never_end, trains
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=60), rules=profile("auto", stall={"save_written_s": 200})),
    "when": (at("09:03", saves_never_end()),),
    "then": (
        fault(FaultClass.SAVE_STUCK),
        attempts(2),
        barred(),
        trains(),
    ),
    "until": "09:26",
}
