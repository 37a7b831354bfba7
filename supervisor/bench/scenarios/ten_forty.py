"""10:40. One server drops. The save of 10:00 is completed, the one of 10:39 is still being written.

One node is barred, a spare takes its slot, the run goes on from 10:00, and 40 minutes are done again.
"""

from policies.facts import FaultClass
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
    redone_minutes,
    swapped,
    trains,
)
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job
from supervisor.bench.world.timeline import clock

JOB = Job(
    step_s=35,
    batch=10_240,
    start_s=60,
    load_s=300,
    first_step_s=20,
    saves_at=(clock("10:00"), clock("10:39")),
    blocked_s=20,
    write_s=180,
)
STORY = {
    "given": Given(start="09:30", job=JOB, seal_s=240),
    "when": (at("10:40:05", lose(slot=4)),),
    "then": (
        incidents(1),
        fault(FaultClass.NODE_LOST),
        earliest(node="n0004"),
        barred("n0004"),
        swapped(4, "n0004", "n0008"),
        from_save_of("10:00"),
        attempts(2),
        redone_minutes(38, 41),
        complete_times(),
        trains(),
    ),
    "until": "11:40",
}
