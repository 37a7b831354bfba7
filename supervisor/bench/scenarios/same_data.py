"""A rank fails on the same samples twice. The data or the code, not the machines: it halts, and no node is barred."""

from policies.reasons import Reason
from supervisor.bench.words import at, attempts, barred, curse, halted
from supervisor.bench.world.given import Given
from supervisor.bench.world.job import Job

STORY = {
    "given": Given(job=Job(save_every=30)),
    "when": (
        at("09:01", curse("rank-fails", sample=8_000, words=("token id 50304 is out of range for the vocabulary",))),
    ),
    "then": (
        halted(Reason.SAME_DATA),
        barred(),
        attempts(2),
    ),
    "until": "09:15",
}
