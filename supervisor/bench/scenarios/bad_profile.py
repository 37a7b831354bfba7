"""Somebody has set the limits of start and load to a second; no attempt can keep them.

The second time a person is asked instead of going round, and what was a stall ends by itself.
"""

from supervisor.bench.words import advances, at, barred, kill_controller
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), rules=profile("auto", stall={"start_up_s": 1, "load_s": 1})),
    "when": (at("09:01", kill_controller()),),
    "then": (barred(), advances()),
    "until": "09:25",
}
