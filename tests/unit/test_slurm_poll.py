"""The bench of looks measures whole looks only."""

import math

import pytest

from slurm.cluster import Unreadable
from slurm.parsing import JobRow, ListedNode, ListedStep
from slurm.states import Phase
from supervisor.bench import slurm_poll
from supervisor.bench.slurm_poll import Look

JOB = JobRow("17", "RUNNING", Phase.RUNNING, "", ("n001",), "n001", "")
STEP = ListedStep("17.batch", "RUNNING", Phase.RUNNING, ("n001",), "batch")


class Told:
    """A source that says what it is told to."""

    def __init__(self, job=JOB, steps=(STEP,), left_out=0) -> None:
        self.told = job, steps
        self.left_out = left_out

    def job(self):
        return self.told[0]

    def steps(self):
        return self.told[1]

    def nodes(self, names):
        return {name: ListedNode(name, "idle", name, "") for name in names[self.left_out :]}


@pytest.mark.parametrize(
    "told", [Told(job=Unreadable("away")), Told(steps=Unreadable("away")), Told(steps=()), Told(left_out=1)]
)
def test_half_a_look_is_not_measured(told):
    slurm_poll.look(Told(), ("n001", "n002"))
    with pytest.raises(RuntimeError):
        slurm_poll.timed(told, ("n001", "n002"), lambda: None)


def test_pyslurm_has_to_cost_less_than_the_commands():
    theirs = Look(20.0, 30.0)
    assert [one.good for one in slurm_poll.of_looks("slurm 25.11.7", theirs, Look(5.0, 60.0))] == [True, True, True]
    assert not slurm_poll.of_looks("slurm 25.11.7", theirs, Look(21.0, 6.0))[2].good
    assert not slurm_poll.of_looks("slurm 25.11.7", theirs, Look(math.nan, 6.0))[2].good
    assert len(slurm_poll.of_looks("slurm 22.05.8", theirs, None)) == 1
