"""When a run leaves its job: with a save, without a fault, and how it goes on. Pure.

A job ends at its time limit, at a preemption, for maintenance; an administrator wants a node back; the hot spares are spent,
and a running job gets no new nodes (docs/slurm.md). Automation acts in mode auto; in mode approve a person is told in time,
and at the last moment the run is stopped with a save, for the job would end it without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies import spares
from policies.facts import UNKNOWN, JobPhase, NodeState
from policies.readiness import few
from policies.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.decisions import Then
    from policies.facts import AttemptView, JobView, NodeView, View
    from policies.history import Attempt, History, StopWish
    from policies.rules import Rules

LIMIT: Final = "time limit"
"""What ends a job (`JobView.ends_by`) whose length is known from its begin."""
SIGNALS: Final = frozenset({"SIGTERM", "SIGINT"})
"""Who asks for a stop when a job is taken away: then the wish ends with that job."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Why the run should leave its job, and how it goes on. `acts`: now and by itself; else a person is told."""

    reason: Reason
    text: str
    then: Then
    acts: bool


def ends_soon(job: JobView | None, history: History, rules: Rules, now: float) -> bool:
    """Is it time to leave for the job's end? Earlier where saves are slow: two of the slowest must fit."""
    if job is None or job.ends_at is None:
        return False
    slowest = max((c.completed_s or c.written_s or 0.0 for c in history.save_costs[-8:]), default=0.0)
    return now >= job.ends_at - max(_at_most(0.5, rules.job.leave_s, job, history), 2 * slowest)


def _at_most(share: float, wanted_s: float, job: JobView, history: History) -> float:
    """`wanted_s`, or this share of the job where its time limit is so short that nothing would be left to train in."""
    if job.ends_at is None or job.ends_by != LIMIT or history.job is None or history.job.id != job.id:
        return wanted_s  # a preemption or a maintenance comes when it comes, and says nothing about the job's length
    return min(wanted_s, share * max(0.0, job.ends_at - history.job.at))


def why_leave(history: History, view: View, rules: Rules, now: float) -> Leave | None:
    """What a running attempt should leave its job for; None while nothing is."""
    job, attempt = view.job, history.attempt
    if job is None or job.phase is not JobPhase.RUNNING or attempt is None or view.nodes is UNKNOWN:
        return None
    auto = history.mode == "auto"
    found = _for_the_end(job, history, rules, now, auto=auto)
    found = found or _for_a_drain(job, history, attempt, view.nodes, rules, now)
    return found or _for_spares(history, attempt, view.nodes, rules, now, acts=auto and job.can_follow)


def _for_the_end(job: JobView, history: History, rules: Rules, now: float, *, auto: bool) -> Leave | None:
    if job.ends_at is None:
        return None
    goes_on = auto and job.can_follow
    left = max(0.0, job.ends_at - now)
    text = f"job {job.id} ends soon ({job.ends_by})"
    if ends_soon(job, history, rules, now) and history.mode != "observe":
        return Leave(Reason.PLANNED_STOP, text, "next-job" if goes_on else "end", acts=True)
    if goes_on or left > rules.job.told_s:
        return None
    observes = "; mode observe: nothing is done for it, and what is not saved by then is lost"
    saves = "; the run saves and stops before, and does not go on by itself"
    text += observes if history.mode == "observe" else saves
    return Leave(Reason.JOB_ENDS, text, "end", acts=False)


def _for_a_drain(
    job: JobView, history: History, attempt: Attempt, nodes: Mapping[str, NodeView], rules: Rules, now: float
) -> Leave | None:
    """Somebody wants a node back that we use. One that is lost as well is an incident's.

    Spares that this controller, or this job, has not heard yet may answer soon: they are waited for.
    """
    auto, barred = history.mode == "auto", history.barred(now)
    wanted = [n for n in attempt.slots if n in nodes and nodes[n].drained_by_other and nodes[n].state is NodeState.UP]
    if not wanted:
        return None
    text = f"{few(wanted)} drained by somebody else"
    filled = spares.choose(attempt.slots, [attempt.slots.index(n) for n in wanted], nodes, barred)
    if isinstance(filled, spares.Filled):
        return Leave(Reason.PLANNED_STOP if auto else Reason.NODE_DRAINED, text, "here", acts=auto)
    free = [n for n in nodes.values() if n.name not in (*attempt.slots, *barred)]
    if now < history.listens_since + rules.node.check_s and any(_may_come(n) for n in free):
        return None
    text += ", and there is no hot spare"
    if auto and job.can_follow:
        return Leave(Reason.PLANNED_STOP, text, "next-job", acts=True)
    return Leave(Reason.NODE_DRAINED, text, "end", acts=False)


def _for_spares(
    history: History, attempt: Attempt, nodes: Mapping[str, NodeView], rules: Rules, now: float, *, acts: bool
) -> Leave | None:
    """Spares that this job has lost; what it was given as lost already would be given again."""
    since = history.job.at if history.job else 0.0
    fresh = {b.node for b in history.bars if b.at >= since}
    spare = [n for n in nodes.values() if n.name not in attempt.slots and n.name not in history.barred(now) - fresh]
    left = len(spare) - sum(1 for n in spare if n.name in fresh or _is_lost(n))
    if left >= min(rules.spares.low, len(spare)):
        return None
    text = f"{left} hot spare{'' if left == 1 else 's'} left, {rules.spares.low} wanted (spares.low)"
    return Leave(Reason.PLANNED_STOP if acts else Reason.SPARES_LOW, text, "next-job", acts=acts)


def _may_come(node: NodeView) -> bool:
    """Up, as far as is known, and without an agent or a first look at it yet."""
    unseen = not node.agent or node.checked_at is None
    return unseen and node.state in {NodeState.UP, NodeState.UNKNOWN} and not node.drained_by_other


def _is_lost(node: NodeView) -> bool:
    """Not: a spare whose agent or checks are awaited, or that the cluster has not heard of yet."""
    gone = node.state in {NodeState.DOWN, NodeState.SILENT}
    return gone or node.drained_by_other or bool(node.unhealthy)


def is_late(history: History, shown: AttemptView | None, job: JobView | None, rules: Rules, now: float) -> bool:
    """Is what still runs to be stopped, though it has not saved? A person's stop without an end in sight may take its time."""
    wish = history.stop_asked
    if wish is None:
        return False
    if (
        job is not None
        and job.ends_at is not None
        and now >= job.ends_at - _at_most(0.2, rules.job.down_s, job, history)
    ):
        return True
    if wish.then == "end":
        return False
    failed = shown is not None and any(not one.clean for one in shown.exits)
    return failed or now - wish.at >= rules.job.move_s


def has_saved(wish: StopWish, attempt: Attempt, view: View) -> bool:
    """Has a save of this attempt been completed since the stop was asked for?"""
    saves = () if view.checkpoints is UNKNOWN else view.checkpoints
    return any(c.attempt == attempt.number and (c.completed_at or 0.0) >= wish.at for c in saves)
