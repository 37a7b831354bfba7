"""10:40 again, but the framework has finished the save of 10:39; only our own checks are missing.

They are finished before an hour is thrown away: the run goes on from 10:39.
"""

from supervisor.bench.words import (
    at,
    barred,
    complete_times,
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

STORY = {
    "given": Given(
        start="09:30",
        job=Job(
            step_s=35,
            batch=10_240,
            start_s=60,
            load_s=300,
            first_step_s=20,
            saves_at=(clock("10:00"), clock("10:39")),
            blocked_s=10,
            write_s=15,
        ),
        seal_s=240,
    ),
    "when": (at("10:40:05", lose(slot=4)),),
    "then": (
        incidents(1),
        barred("n0004"),
        swapped(4, "n0004", "n0008"),
        from_save_of("10:39"),
        redone_minutes(0, 3),
        complete_times(),
        trains(),
    ),
    "until": "11:40",
}
