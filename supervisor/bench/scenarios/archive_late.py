"""The archive takes nothing in for longer than twice the time between copies. A person is told once; nothing is stopped."""

from policies.reasons import Reason
from supervisor.bench.words import archive_fails, archived, at, attempts, incidents, told
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), archive=True, rules=profile(checkpoint={"archive_every_s": 600})),
    "when": (at("09:00:30", archive_fails(3000)),),
    "then": (
        told(Reason.ARCHIVE_LATE, 1),
        archived(1, 3),
        incidents(0),
        attempts(1),
    ),
    "until": "10:00",
}
