"""What can happen to the job of a supervised run: its end, a drain, a requeue, spent spares, a person who takes it away."""

from __future__ import annotations

from policies.decisions import Recover
from supervisor.bench.slurmbed import strikes
from supervisor.bench.slurmbed.supervised import SlurmRun


def time_limit(run: SlurmRun) -> None:
    """Nothing is done: the job has a time limit that the training does not fit into, not even twice."""
    del run


def node_drained(run: SlurmRun) -> None:
    """An administrator wants back a node that holds a slot."""
    run.bed.run("scontrol", "update", f"NodeName={run.slots()[2]}", "State=DRAIN", "Reason=service")


def spares_spent(run: SlurmRun) -> None:
    """The only spare is used up by a lost node: the profile wants one, or a second node is lost."""
    strikes.node_crash(run)


def no_spare_left(run: SlurmRun) -> None:
    """One more node is lost than there are spares."""
    strikes.node_crash(run)
    run.wait_closed(1)
    run.wait_step(strikes.STRUCK + 8)
    run.bed.crash_node(run.slots()[1])


def crash_approved(run: SlurmRun) -> None:
    """A node is lost; until a person says yes nothing is started, drained or asked for, then they do. Raises RuntimeError."""
    lost = run.slots()[2]
    strikes.node_crash(run)
    plan = run.until(lambda: _plan(run), "a plan", 60)
    run.until(lambda: "down" in run.bed.node_states()[lost], f"{lost} down", 60)  # in this time it could have acted
    history = run.history()
    if len(history.attempts) != 1 or len(run.jobs()) != 1 or "drain" in run.bed.node_states()[lost]:
        raise RuntimeError("something was done before it was approved")
    run.relight("approve", run.run.root, "--plan", plan)


def _plan(run: SlurmRun) -> str:
    history = run.history()
    return history.decision_digest or "" if history.incident and isinstance(history.decision, Recover) else ""


def requeued(run: SlurmRun) -> None:
    """An operator requeues the job while it trains."""
    run.bed.run("scontrol", "requeue", run.at)


def batch_host_requeued(run: SlurmRun) -> None:
    """The batch host is lost and nobody stands by outside: an operator requeues the job, which finds the journal."""
    lost = run.slots()[0]
    run.bed.crash_node(lost)
    # Before that 22.05 may start it anew without its GPUs (docs/slurm.md).
    run.until(lambda: "down" in run.bed.node_states()[lost], f"{lost} down", 60)
    requeued(run)
    run.until(lambda: (job := run.history().job) is not None and job.follows, "the run in the requeued job", 180)


def cancelled(run: SlurmRun) -> None:
    """Its owner cancels the job."""
    run.bed.run("scancel", run.at)


def stop_for_next(run: SlurmRun) -> None:
    """A person asks for the next job."""
    run.relight("stop", run.run.root, "--next-job", "--because", "new spares")


def stop_after_save(run: SlurmRun) -> None:
    """A person asks for a stop after the next save, and starts the run again."""
    run.relight("stop", run.run.root, "--after-checkpoint")
    run.wait_over()
    run.resubmit()
