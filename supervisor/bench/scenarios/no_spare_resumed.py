"""No spare is left. The node comes back, a person looks at it and resumes: the run goes on with it."""

from supervisor.bench.words import at, attempts, back, lose, same_slots, trains
from supervisor.bench.world.desk import Person
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30), spares=0, person=Person(resumes_s=180)),
    "when": (
        at("09:05", lose(slot=2)),
        at("09:07", back("n0002")),
    ),
    "then": (
        attempts(2),
        same_slots(),
        trains(),
    ),
    "until": "09:15",
}
