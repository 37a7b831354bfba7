"""Nothing happens, for a day, on 640 nodes. The first save of the day is copied into the archive, beside the training."""

from supervisor.bench.words import archived, at, attempts, incidents, stranger_speaks, trains
from supervisor.bench.world.given import LARGE, Given
from supervisor.bench.world.job import Job
from supervisor.bench.world.timeline import clock

STORY = {
    "given": Given(
        layout=LARGE,
        spares=16,
        start="00:00",
        job=Job(
            step_s=35,
            batch=10_240,
            start_s=60,
            load_s=300,
            saves_at=tuple(clock("00:00") + 3600.0 * h for h in range(1, 24)),
            blocked_s=1.5,
            write_s=180,
        ),
        seal_s=240,
        archive=True,
        copy_s=7200,
        reread_s=5400,
    ),
    "when": (at("12:00", stranger_speaks()),),
    "then": (
        incidents(0),
        archived(1),
        attempts(1),
        trains(),
    ),
    "until": "24:00",
    "killed": False,
    "modes": ("auto",),
}
