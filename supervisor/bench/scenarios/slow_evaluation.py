"""An evaluation takes seven minutes, three hundred times as long as a step. That is no hang."""

from supervisor.bench.words import at, attempts, incidents, stranger_speaks, trains
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job
from supervisor.bench.world.timeline import clock

STORY = {
    "given": Given(job=Job(save_every=30, evaluations_at=(clock("09:05"),), evaluation_s=420)),
    "when": (at("09:06", stranger_speaks()),),
    "then": (
        incidents(0),
        attempts(1),
        trains(),
    ),
    "until": "09:16",
}
