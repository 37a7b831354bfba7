"""A save rots while all is well. The regular reading finds it, and the rank that dies later goes back to a good one."""

from supervisor.bench.words import (
    at,
    attempts,
    condition_of,
    from_save_of,
    newest_rots,
    rank_dies,
    read_again,
    told,
    trains,
)
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=150), archive=True, rules=profile(checkpoint={"reread_every_s": 120})),
    "when": (
        at("09:11", newest_rots()),
        at("09:13:30", rank_dies(3)),
    ),
    "then": (
        attempts(2),
        read_again(4),
        condition_of("i0000300", "broken"),
        told("save-broken", 1),
        from_save_of("09:05"),
        trains(),
    ),
    "until": "09:28",
}
