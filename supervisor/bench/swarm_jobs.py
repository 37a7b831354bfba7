"""Swarm worlds in a Slurm job: it ends, is taken away, cancelled, requeued, and its next one can't always be had at once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from supervisor.bench.world.allocation import Allocation, SimJob
from supervisor.bench.world.given import Given
from supervisor.bench.world.world import SimWorld

SHARE: Final = 0.35
"""Of the seeds, so many have a job."""
Fault = Callable[[SimWorld, Random], None]


def _job(world: SimWorld) -> SimJob:
    assert world.cluster.job is not None  # noqa: S101 - only worlds with a job draw these
    return world.cluster.job


def _ends(world: SimWorld, rng: Random) -> None:
    _job(world).ends(world.time.now + rng.choice([20.0, 90.0, 400.0]), "maintenance", "TIMEOUT")


def _preempted(world: SimWorld, rng: Random) -> None:
    at = world.time.now + rng.choice([1.0, 30.0, 120.0])
    _job(world).ends(at, "preemption", "PREEMPTED", requeues=rng.random() < 0.7)


def _refuses(world: SimWorld, rng: Random) -> None:
    _job(world).refuses_until = world.time.now + rng.choice([10.0, 200.0])


JOB_FAULTS: Final[dict[str, Fault]] = {
    "job-ends": _ends,
    "job-preempted": _preempted,
    "job-killed": lambda w, r: _job(w).end(r.choice(["TIMEOUT", "NODE_FAIL"])),
    "job-cancelled": lambda w, r: _job(w).end("CANCELLED") if r.random() < 0.3 else None,
    "job-requeued": lambda w, _: _job(w).requeue(),
    "job-refused": _refuses,
    "job-lost": lambda w, r: w.cluster.lose.update({"next-job": r.choice([1, 2])}),
    "job-late": lambda w, r: w.cluster.late.update({"next-job": r.choice([0.0, 10.0, 45.0])}),
    "job-drain": lambda w, r: w.drain_node(r.choice(_job(w).names)),
    "job-wanted": lambda w, _: w.desk.file("stop", why="new nodes", next_job=True),
}
"""Of worlds whose nodes a job holds, beside the others."""


def hold(given: Given, rng: Random) -> Given:
    """The same world in a job. Its profile leaves sooner than a real one, so that much happens within a short time."""
    limits = given.rules.job.model_copy(
        update={
            "leave_s": rng.choice([30.0, 120.0]),
            "down_s": 10.0,
            "told_s": 200.0,
            "move_s": rng.choice([60.0, 300.0]),
        }
    )
    spares = given.rules.spares.model_copy(update={"low": rng.choice([0, 0, 1, 2])})
    allocation = Allocation(
        ends_s=rng.choice([None, 300.0, 700.0]),
        pool=rng.randrange(4),
        waits_s=rng.choice([1.0, 20.0, 150.0]),
        ending_s=rng.choice([1.0, 15.0]),
        can_follow=rng.random() < 0.9,
    )
    return given.but(allocation=allocation, rules=given.rules.model_copy(update={"job": limits, "spares": spares}))


def unrest(world: SimWorld, history: Any) -> str | None:
    """What of a job is still to come: a next one that could be had, a stop that was asked for. None: nothing, or not by us."""
    job = world.cluster.job
    if job is None or (history.ended and history.ended != "next-job"):
        return None
    if job.phase == "waiting" and job.lacks_nodes:
        return None
    told = any(":next-job:" in key for key in history.told)
    if history.ended == "next-job" and not (told and job.phase == "ended"):
        return f"the next job is awaited, and job {job.id} is {job.word}"
    wish = history.stop_asked
    return f"a stop was asked for by {wish.who}, then {wish.then}" if wish is not None and wish.then != "end" else None


def lasts(world: SimWorld) -> None:
    """The faults stop: no job ends any more but by the run's own wish."""
    job = world.cluster.job
    if job is not None:
        job.refuses_until = 0.0
        job.lasts()


def in_some(given: Given, seed: int, safety_s: float) -> tuple[Given, list[tuple[float, str]]] | None:
    """A world in a job, and the seconds and names of what may go wrong with that; None for a seed without. Drawn apart."""
    rng = Random(f"job {seed}")
    if rng.random() > SHARE:
        return None
    held = hold(given, rng)
    mix = rng.sample(sorted(JOB_FAULTS), rng.randrange(1, 5))
    return held, [(rng.uniform(20.0, safety_s), rng.choice(mix)) for _ in range(rng.randrange(1, 7))]
