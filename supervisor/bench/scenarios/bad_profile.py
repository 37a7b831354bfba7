"""Somebody has set the limits of start and load to a second; no attempt can keep them. It halts instead of going round."""

from policies.reasons import Reason
from supervisor.bench.words import at, barred, halted, kill_controller
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("auto", stall={"start_up_s": 1, "load_s": 1})),
    "when": (at("09:01", kill_controller()),),
    "then": (halted(Reason.NO_PROGRESS), barred()),
    "until": "09:25",
}
