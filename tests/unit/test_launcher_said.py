"""What srun says of ranks that left no record becomes their end and a finding; where there is a record it says nothing new."""

import pytest

from policies.facts import UNKNOWN, AttemptView, RankExit
from slurm.cluster import StepRow, TaskEnd
from supervisor.observe.launcher_said import FEW, LauncherSaid

KILLED = "srun: error: n002: task 2: Out Of Memory"
FAILED = "srun: error: Task launch for StepId=1.2 failed on node n003: Communication connection failure"
NODES = frozenset({"n001", "n002"})
ALIVE = AttemptView(3, UNKNOWN)


def row(*ends, complaints=()):
    return StepRow("demo.a0003.e1", running=True, running_on=NODES, known_on=NODES, ends=ends, complaints=complaints)


def killed(task=2, of=4):
    return TaskEnd(task, of, "n002", KILLED, signal=9)


@pytest.fixture
def said():
    one = LauncherSaid(4)
    one.note(3, row(), 99.0)
    one.note(3, row(killed()), 100.0)
    return one


def test_the_end_of_a_rank_without_a_record_is_believed(said):
    shown = said.add_to(ALIVE)
    assert shown.exits == (RankExit(2, "n002", 3, 99.0, None, 9),)
    (found,) = said.findings(ALIVE)
    assert (found.text, found.rank, found.node, found.category) == (KILLED, 2, "n002", "oom.host")
    assert (found.wall, found.offset_bound) == (99.0, 1.0)


def test_it_is_dated_by_the_look_that_first_told_of_it(said):
    said.note(3, row(killed()), 101.0)
    assert said.add_to(ALIVE).exits[0].wall == 99.0


def test_a_record_says_it_better(said):
    recorded = AttemptView(3, UNKNOWN, exits=(RankExit(2, "n002", 3, 99.2, 1),))
    assert said.add_to(recorded) is recorded
    assert said.findings(recorded) == ()


def test_a_task_that_starts_the_ranks_of_a_slot_ends_all_of_them():
    said = LauncherSaid(4)
    said.note(3, row(killed(task=1, of=2)), 100.0)
    recorded = AttemptView(3, UNKNOWN, exits=(RankExit(3, "n002", 3, 99.0, None, 9),))
    assert [one.rank for one in said.add_to(recorded).exits] == [3, 2]
    assert [one.rank for one in said.add_to(ALIVE).exits] == [2, 3]


def test_what_is_of_no_rank_is_a_finding_at_once_and_what_nobody_knows_is_none():
    said = LauncherSaid(4)
    said.note(3, row(complaints=(FAILED, "srun: error: some words")), 100.0)
    (found,) = said.findings(ALIVE)
    assert (found.text, found.kind, found.rank) == (FAILED, "launch-timeout", None)
    assert said.add_to(ALIVE) is ALIVE


def test_another_attempt_is_not_meant(said):
    other = AttemptView(4, UNKNOWN)
    assert said.add_to(other) is other
    assert said.findings(other) == ()


def test_the_records_are_asked_for_once(said):
    assert said.unasked(ALIVE) == {2}
    assert said.unasked(ALIVE) == set()
    said.note(3, row(killed(), killed(task=3)), 103.0)
    assert said.unasked(ALIVE) == {3}


def test_of_many_at_once_the_agents_tell():
    said = LauncherSaid(100)
    said.note(3, row(*(killed(task=n, of=100) for n in range(FEW + 1))), 100.0)
    assert said.unasked(ALIVE) == set()
    assert said.add_to(ALIVE) is ALIVE
    told = AttemptView(3, UNKNOWN, exits=(RankExit(0, "n001", 3, 99.0, 1),))
    assert len(said.add_to(told).exits) == FEW + 1
