"""The job that holds the nodes and the one that follows it, on a real slurmctld. Needs root; else skipped, saying why."""

import os
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from slurm.asking import Commands
from slurm.awaited import Awaited, note_of
from slurm.cluster import ClusterView, Job, NodeCondition
from slurm.commands import SlurmCommands
from slurm.jobs import AGAIN_S, Following, Submission
from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

WAIT_S = 40.0
GRACE_S = 8
USER = 65534  # nobody: who may do nothing but with jobs of their own
PREEMPTION = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    f"PartitionName=DEFAULT PriorityTier=1 GraceTime={GRACE_S}",
    "PartitionName=urgent Nodes=ALL PriorityTier=9",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmBed]:
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    with SlurmBed(Shape(nodes=3, extra=PREEMPTION), os.environ.get("RELIGHT_SLURM_ROOT", "")) as bed:
        yield bed


@pytest.fixture
def bed(cluster) -> Iterator[SlurmBed]:
    """The cluster, without a job or a reservation, with every node idle; the same afterwards."""
    yield cluster
    cluster.run("scancel", "--user=root", check=False)
    cluster.run("scancel", f"--user={USER}", check=False)
    for line in cluster.run("scontrol", "-o", "show", "reservation", check=False).splitlines():
        if line.startswith("ReservationName="):
            cluster.run("scontrol", "delete", line.split()[0])
    for name, state in cluster.node_states().items():
        if "down" in state or "drain" in state:
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
    cluster.until(lambda: set(cluster.node_states().values()) == {"idle"}, "all nodes idle")


class Held:
    """A job on the bed, seen through the port."""

    def __init__(self, bed: SlurmBed, run_dir: Path, job: str, env=None) -> None:
        self.run_dir = run_dir
        self.env = env or bed.env
        self.id = job
        self.nodes = bed.job_nodes(job)

    def port(self, following: Following = Following()) -> SlurmCommands:  # noqa: B008 - frozen
        """As a new controller would make it."""
        return SlurmCommands(str(self.run_dir), self.id, env=self.env, following=following)

    def see(self, port: SlurmCommands) -> Job:
        view = port.read()
        assert isinstance(view, ClusterView), view
        assert view.job is not None
        assert view.job.id == self.id
        return view.job

    def until(self, port: SlurmCommands, true_of, wait_s: float = WAIT_S) -> Job:
        until = time.monotonic() + wait_s
        while not true_of(seen := self.see(port)):
            assert time.monotonic() < until, seen
            time.sleep(0.05)  # Slurm announces nothing
        return seen


def script(bed: SlurmBed, body: str = "exec sleep 100000") -> str:
    """A job script that every user can read; its path."""
    path = Path(f"{bed.base}/job-{time.monotonic_ns()}.sh")
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
    path.chmod(0o755)
    return str(path)


def test_the_end_of_a_job_is_its_time_limit_and_follows_one_that_is_changed(bed, tmp_path):
    before = time.time()
    held = Held(bed, tmp_path, bed.submit(1, "--time=10"))
    after = time.time()
    port = held.port()
    seen = held.see(port)
    assert (seen.phase, seen.word, seen.ends_by) == ("running", "RUNNING", "time limit")
    assert (seen.can_follow, seen.next) == (True, "")
    assert seen.ends_at is not None
    assert before + 600 - 1 <= seen.ends_at <= after + 600 + 1  # Slurm tells whole seconds
    bed.run("scontrol", "update", f"JobId={held.id}", "TimeLimit=25")
    assert held.until(port, lambda job: job.ends_at != seen.ends_at).ends_at == seen.ends_at + 900


def test_a_job_without_a_time_limit_has_no_end_that_is_near(bed, tmp_path):
    held = Held(bed, tmp_path, bed.submit(1))
    seen = held.see(held.port())
    assert seen.ends_at is None or seen.ends_at > time.time() + 300 * 86400  # Slurm's "unlimited" is a year


def reserve(bed: SlurmBed, node: str, begins: int, flags: str) -> None:
    when = datetime.fromtimestamp(begins).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006 - scontrol takes the local time
    words = (f"StartTime={when}", "Duration=60", f"Nodes={node}", "Users=root", f"Flags={flags}")
    bed.run("scontrol", "create", "reservation", *words)


def test_maintenance_of_its_nodes_ends_a_job_and_what_else_is_reserved_does_not(bed, tmp_path):
    held = Held(bed, tmp_path, bed.submit(2, "--time=60"))
    other = next(name for name in bed.names if name not in held.nodes)
    begins = int(time.time()) + 1200
    reserve(bed, other, begins - 600, "MAINT,IGNORE_JOBS")
    reserve(bed, held.nodes[0], begins - 300, "IGNORE_JOBS")
    assert held.see(held.port()).ends_by == "time limit"
    reserve(bed, held.nodes[1], begins, "MAINT,IGNORE_JOBS")
    seen = held.see(held.port())  # a port that has looked looks again after a minute; a new one at once
    assert (seen.ends_at, seen.ends_by) == (begins, "maintenance")


def test_the_next_job_is_submitted_once_and_begins_elsewhere_when_this_one_ends(bed, tmp_path):
    name = "--job-name=a run: of words"
    held = Held(bed, tmp_path, bed.submit(3, name))
    without = held.nodes[0]
    words = (name, "--nodes=2", "--exclusive", "--chdir=/", "--output=/dev/null", script(bed))
    following = Following(Submission(words, "/"), requeue=False)
    port = held.port(following)
    start = held.see(port).start
    port.next_job(start, [without], 1)
    port.next_job(start, [without], 1)
    held.port(following).next_job(start, [without], 1)
    for note in (tmp_path / "nodes").glob("next-*.json"):
        note.unlink()  # as if whoever has submitted it had died before it was noted
    again = held.port(following)
    again.next_job(start, [without], 1)
    after = held.see(again).next
    assert set(bed.run("squeue", "-h", "-o", "%A").split()) == {held.id, after}
    assert bed.job_state(after) == "PENDING"
    bed.run("scancel", held.id)
    bed.until(lambda: bed.job_state(after) == "RUNNING", "the next job running")
    nodes = bed.job_nodes(after)
    assert without not in nodes
    assert len(nodes) == 2
    # It was submitted with --no-kill, by the variable: the loss of a node does not end it.
    bed.run("scontrol", "update", f"NodeName={nodes[1]}", "State=DOWN", "Reason=lost")
    bed.until(lambda: bed.job_nodes(after) == nodes[:1], "the job smaller by a node")
    assert bed.job_state(after) == "RUNNING"


def test_a_next_job_that_is_cancelled_while_it_waits_is_over(bed, tmp_path):
    held = Held(bed, tmp_path, bed.submit(1))
    port = held.port(Following(Submission(("--nodes=1", "--chdir=/", "--output=/dev/null", script(bed)), "/")))
    start = held.see(port).start
    port.next_job(start, [], 1)
    after = held.see(port).next

    def over() -> str:
        return Awaited(str(tmp_path), lambda job: Commands(job, bed.env, WAIT_S).job()).over(held.id, start)

    assert over() == ""
    bed.run("scancel", after)
    assert over() == f"job {after} is CANCELLED"
    Path(note_of(str(tmp_path), held.id, start)).write_text('{"schema": 1, "next": "9999"}')
    assert over() == "job 9999 is not known to Slurm any more"


def test_what_is_requeued_from_outside_begins_within_seconds_on_other_nodes(bed, tmp_path):
    """As its owner does it, who has no other right."""
    env = bed.as_user(USER)
    words = ("--parsable", "--requeue", "--exclusive", "--nodes=2", "--chdir=/", "--output=/dev/null", script(bed))
    told = subprocess.run(["sbatch", *words], env=env, cwd="/", capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    job = told.stdout.strip()
    bed.until(lambda: bed.job_state(job) == "RUNNING", "the job running")
    held = Held(bed, tmp_path, job, env)
    port = held.port()
    first = held.see(port)
    port.next_job(first.start, [held.nodes[0]], 1)
    # By itself it would wait for cred_expire, 11 s here.
    shown = bed.run("env", "TZ=UTC", "scontrol", "-o", "show", "job", job)
    eligible = datetime.fromisoformat(f"{shown.split('EligibleTime=')[1].split()[0]}+00:00").timestamp()
    assert eligible <= time.time() + AGAIN_S
    second = held.until(port, lambda job: job.phase == "running")
    assert second.start != first.start
    assert held.nodes[0] not in bed.job_nodes(job)
    assert second.next == ""  # what was asked for holds for the first start
    assert len(list((tmp_path / "nodes").glob("next-*.json"))) == 1
    # Nobody leaves that node out any more: whom only we had excluded, the next start may have.
    assert f"ExcNodeList={held.nodes[0]} " in bed.run("scontrol", "-o", "show", "job", job)
    port.next_job(second.start, [], 1)
    held.until(port, lambda job: job.phase == "running" and job.start != second.start)
    assert "ExcNodeList=(null) " in bed.run("scontrol", "-o", "show", "job", job)


def test_a_job_that_is_over_is_requeued_and_runs_again(bed, tmp_path):
    mark = Path(bed.base, "once")
    body = f"[ -e {mark} ] && exec sleep 1000; : >{mark}; exit 93"
    words = ("--parsable", "--requeue", "--chdir=/", "--output=/dev/null", script(bed, body))
    job = bed.run("sbatch", *words).strip()
    bed.until(lambda: bed.job_state(job) == "FAILED", "the job over")
    held = Held(bed, tmp_path, job)
    port = held.port()
    seen = held.see(port)
    # Whoever looks at it only now knows too that it may be requeued.
    assert (seen.phase, seen.word, seen.can_follow, seen.ends_at) == ("ended", "FAILED", True, None)
    port.next_job(seen.start, [], 1)
    assert held.until(port, lambda job: job.phase == "running").start != seen.start


def test_a_job_that_may_not_be_requeued_cannot_follow_itself(bed, tmp_path):
    held = Held(bed, tmp_path, bed.submit(1, "--no-requeue"))
    port = held.port()
    assert not held.see(port).can_follow
    with pytest.raises(OSError, match="scontrol requeue"):
        port.next_job(held.see(port).start, [], 1)
    assert held.see(port).next == ""
    assert held.see(held.port(Following(Submission(("--wrap=true",), "/"), requeue=False))).can_follow
    bed.run("scancel", held.id)
    assert not held.until(held.port(), lambda job: job.phase == "ended").can_follow


def test_a_preemption_is_seen_while_the_job_still_runs(bed, tmp_path):
    stays = 'trap "" TERM; while :; do sleep 1; done'  # it is told at once, and killed when its grace time is over
    words = ("--parsable", "--requeue", "--exclusive", "--nodes=3", "--time=60", "--chdir=/", "--output=/dev/null")
    job = bed.run("sbatch", *words, script(bed, stays)).strip()
    bed.until(lambda: bed.job_state(job) == "RUNNING", "the job running")
    held = Held(bed, tmp_path, job)
    port = held.port()
    first = held.see(port)
    assert first.ends_by == "time limit"
    asked = time.time()
    urgent = bed.run(
        "sbatch", "--parsable", "--partition=urgent", "--chdir=/", "--output=/dev/null", script(bed)
    ).strip()
    seen = held.until(port, lambda job: job.ends_by == "preemption")
    saw = time.time()
    assert (seen.phase, seen.word) == ("running", "RUNNING")
    assert seen.ends_at is not None
    assert asked + GRACE_S - 1 <= seen.ends_at <= saw + GRACE_S
    held.until(port, lambda job: job.phase != "running")
    assert time.time() >= seen.ends_at - 1
    held.until(port, lambda job: job.phase == "waiting")
    bed.until(lambda: bed.job_state(urgent) == "RUNNING", "the urgent job running")
    bed.run("scancel", urgent)
    bed.run("scontrol", "update", f"JobId={job}", f"StartTime=now+{AGAIN_S}")
    again = held.until(port, lambda job: job.phase == "running")
    assert again.start != first.start
    assert again.ends_by == "time limit"  # nothing is left of the preemption


def test_a_job_that_is_cancelled_is_over_and_says_so(bed, tmp_path):
    held = Held(bed, tmp_path, bed.submit(2))
    port = held.port()
    assert held.see(port).phase == "running"
    bed.run("scancel", held.id)
    seen = held.until(port, lambda job: job.phase == "ended")
    assert seen.word == "CANCELLED"
    view = port.read()
    assert isinstance(view, ClusterView)
    assert {row.condition for row in view.nodes.values()} == {NodeCondition.DOWN}
