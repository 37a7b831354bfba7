"""10:40 at full size: 640 nodes, 5,120 ranks, TP8/PP8/DP80. 639 nodes stop in a collective and print their timeouts."""

from policies.facts import FaultClass
from supervisor.bench.scenarios.ten_forty import JOB
from supervisor.bench.words import (
    at,
    attempts,
    barred,
    complete_times,
    earliest,
    fault,
    from_save_of,
    incidents,
    lose,
    plan_within,
    redone_minutes,
    swapped,
    trains,
)
from supervisor.bench.world.given import LARGE, Given

STORY = {
    "given": Given(layout=LARGE, spares=16, start="09:30", job=JOB, seal_s=240),
    "when": (at("10:40:05", lose(slot=417)),),
    "then": (
        incidents(1),
        fault(FaultClass.NODE_LOST),
        earliest(node="n0417"),
        barred("n0417"),
        swapped(417, "n0417", "n0640"),
        from_save_of("10:00"),
        attempts(2),
        redone_minutes(38, 41),
        complete_times(),
        plan_within(5),
        trains(),
    ),
    "until": "11:40",
    "killed": False,
}
