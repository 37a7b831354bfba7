"""The words of stories in which a Slurm job holds the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.bench.world.timeline import clock

if TYPE_CHECKING:
    from policies.history import History
    from slurm.cluster import EndsBy
    from supervisor.bench.words import Do, Then
    from supervisor.bench.world.allocation import SimJob
    from supervisor.bench.world.world import SimWorld


def _job(world: SimWorld) -> SimJob:
    assert world.cluster.job is not None  # noqa: S101 - such a story is given an allocation
    return world.cluster.job


def job_ends(time: str, by: EndsBy = "maintenance", word: str = "TIMEOUT") -> Do:
    """It becomes known that the job's nodes are taken back at this time of day."""
    return lambda world: _job(world).ends(clock(time), by, word)


def preempted(after_s: float) -> Do:
    """A job that matters more wants the nodes, and gets them after so many seconds; ours is requeued then."""
    return lambda world: _job(world).ends(world.time.now + after_s, "preemption", "PREEMPTED", requeues=True)


def job_killed(word: str) -> Do:
    """The cluster ends the job without a warning, and says this of it: TIMEOUT, NODE_FAIL."""
    return lambda world: _job(world).end(word)


def job_cancelled() -> Do:
    """Somebody cancels the job (scancel)."""
    return job_killed("CANCELLED")


def job_requeued() -> Do:
    """An operator has the job requeued."""
    return lambda world: _job(world).requeue()


def next_job_refused(seconds: float) -> Do:
    """For so long Slurm says no to whoever asks for a next job."""

    def do(world: SimWorld) -> None:
        _job(world).refuses_until = world.time.now + seconds

    return do


def jobs(starts: int, asked: int) -> Then:
    """The job has begun so often, and the run has asked for a next one so often."""

    def then(world: SimWorld, _: History) -> str | None:
        words = [what for _, what, _ in _job(world).log.rows]
        have = (words.count("RUNNING"), words.count("asked"))
        return (
            None
            if have == (starts, asked)
            else f"{have[0]} starts of the job and {have[1]} asked for, not {starts} and {asked}"
        )

    return then


def ended(how: str) -> Then:
    """The run has ended like this: stopped, finished, next-job; "": it has not."""

    def then(_: SimWorld, history: History) -> str | None:
        have = history.ended or ""
        return None if have == how else f"ended {have or 'not'}, not {how or 'not'}"

    return then


def on(*nodes: str) -> Then:
    """The newest attempt holds these nodes, in the order of its slots."""

    def then(_: SimWorld, history: History) -> str | None:
        have = history.attempt.slots if history.attempt else ()
        return None if have == nodes else f"slots {', '.join(have)}"

    return then


def saved_last() -> Then:
    """The newest attempt has ended with a completed save of its last step."""

    def then(world: SimWorld, history: History) -> str | None:
        last = history.attempt
        if last is None or last.closed_at is None:
            return "the attempt is not over"
        newest = max((save.counters.step for save in world.store.completed()), default=0)
        return (
            None
            if newest == last.last_step
            else f"the newest save is of step {newest}, the last step was {last.last_step}"
        )

    return then
