"""What should happen now: an ordered list of rules, each rule(facts) -> Decision | None; the first that answers wins. Pure."""

from __future__ import annotations

from collections.abc import Callable

from policies import halting, leaving
from policies.decisions import Contain, Continue, Decision, Finish, Halt, PlannedStop, Wait
from policies.detect import stall_at
from policies.facts import UNKNOWN, JobPhase, View
from policies.history import History
from policies.layout import Layout
from policies.reasons import Reason
from policies.recovering import recover, start
from policies.rollback import await_seals
from policies.rules import Rules
from policies.situation import LOOK_AGAIN_S, Situation, all_clean, halt
from policies.sticky import keep_recovering
from policies.watching import accept, archive_late, room, save_unfinished, watch_probation

FIRST_LOOK_S = 10.0
"""So long after a controller began a part that it has not read yet is only being looked at; then it can't be read."""


def decide(history: History, view: View, layout: Layout, rules: Rules, now: float) -> Decision:
    """The decision for this moment, with its reason."""
    situation = Situation(history, view, layout, rules, now)
    for rule in RULES:
        decision = rule(situation)
        if decision is not None:
            return decision
    until = stall_at(history, view, rules)
    return Continue(Reason.RUNNING, until)


def stay_halted(s: Situation) -> Decision | None:
    """Halted stays halted until a person acts."""
    halted = s.history.halted
    if halted is None:
        return None
    attempt = s.history.attempt
    return Halt(halted.reason, halted.seen, halted.lifts, attempt.number if attempt else None, halted.incident)


def stay_ended(s: Situation) -> Decision | None:
    """A run that has ended starts nothing."""
    if s.history.ended is None:
        return None
    if s.history.ended == "next-job":
        return _wait_for_next_job(s)
    reason = Reason.FINISHED if s.history.ended == "finished" else Reason.PLANNED_STOP
    return Finish(reason, s.history.attempt.number if s.history.attempt else 0)


def _wait_for_next_job(s: Situation) -> Wait:
    """The run has left its job, and goes on when the next one has begun. That it can't be had is told."""
    job = s.view.job
    refused = next((why for key, why in s.view.failures if key.startswith("next-job:")), "")
    none = job is not None and not job.can_follow and not job.next
    text = refused or (
        "no next job can be asked for: submit the job script again" if none else "the next job is awaited"
    )
    return Wait(Reason.NEXT_JOB, s.now + LOOK_AGAIN_S, text, tells=bool(refused) or none)


def wait_for_sight(s: Situation) -> Decision | None:
    """Without the cluster or the store nothing is decided: unknown is not healthy, and not broken. Not yet is neither."""
    looks_until = s.history.epoch_began_at + FIRST_LOOK_S
    if s.view.unread and s.now < looks_until:
        awaited = " and ".join(sorted(s.view.unread))
        return Wait(Reason.FIRST_LOOK, min(looks_until, s.now + LOOK_AGAIN_S), f"the first look at the {awaited}")
    if s.view.nodes is UNKNOWN:
        return Wait(Reason.BLIND, s.now + LOOK_AGAIN_S, "the cluster can't be read")
    if s.view.checkpoints is UNKNOWN:
        return Wait(Reason.STORE_BLIND, s.now + LOOK_AGAIN_S, "the checkpoint store can't be read")
    job = s.view.job
    if job is not None and job.phase is not JobPhase.RUNNING:
        return Wait(Reason.NEXT_JOB, s.now + LOOK_AGAIN_S, f"job {job.id} is {job.word}")
    return None


def finish(s: Situation) -> Decision | None:
    """Every rank ended with 0."""
    attempt = s.history.attempt
    if attempt is None or not all_clean(s) or s.own_incident:
        return None
    return Finish(Reason.PLANNED_STOP if s.history.stop_asked else Reason.FINISHED, attempt.number)


def planned_stop(s: Situation) -> Decision | None:
    """Somebody asked for a save and a stop. A fault on the way is a fault, unless the run goes on by itself anyway."""
    attempt, wish, job = s.history.attempt, s.history.stop_asked, s.view.job
    if wish is None or attempt is None or attempt.closed_at is not None or s.history.incident:
        return None
    late = leaving.is_late(s.history, s.shown, job, s.rules, s.now)
    saved = wish.after_save and leaving.has_saved(wish, attempt, s.view)
    if wish.after_save and not saved and not late and not leaving.ends_soon(job, s.history, s.rules, s.now):
        return None
    return PlannedStop(Reason.PLANNED_STOP, attempt.number, wish.then, late or saved, wish.why)


def leave(s: Situation) -> Decision | None:
    """The job ends, a node is wanted back, the spares are spent: by itself where that was allowed, else a person is told."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or s.history.incident or s.history.stop_asked:
        return None
    found = leaving.why_leave(s.history, s.view, s.rules, s.now)
    if found is None:
        return None
    if found.acts:
        return PlannedStop(found.reason, attempt.number, found.then, text=found.text)
    return Continue(found.reason, stall_at(s.history, s.view, s.rules), found.text)


def refused(s: Situation) -> Decision | None:
    """A person said no to the plan: nothing is started until a person says what instead."""
    incident = s.history.incident
    if incident is None or not s.history.refused:
        return None
    return halt(s, incident, Reason.REFUSED, "the plan was refused", "relight resume, with another plan if wanted")


def contain(s: Situation) -> Decision | None:
    """Evidence first. Then, when something has died, the attempt is fenced and stopped; a pure stall is left as it stands."""
    attempt, incident = s.history.attempt, s.own_incident
    if attempt is None or incident is None or attempt.closed_at is not None:
        return None
    if incident.trouble.died or incident.times.evidence is None:
        return Contain(incident.trouble.reason, incident.number, incident.attempt, incident.trouble.died)
    return None


def stop_restarting(s: Situation) -> Decision | None:
    """The same again, budgets and progress: when more restarts would only burn machines."""
    incident = s.own_incident
    if incident is None:
        return None
    stop = halting.judge(s.history, s.rules, s.now)
    if stop is None:
        return None
    return halt(s, incident, stop.reason, stop.seen, stop.lifts)


Rule = Callable[[Situation], Decision | None]
RULES: tuple[Rule, ...] = (
    stay_halted,
    stay_ended,
    wait_for_sight,
    refused,
    keep_recovering,
    start,
    contain,
    stop_restarting,
    await_seals,
    recover,
    finish,
    planned_stop,
    leave,
    accept,
    room,
    archive_late,
    save_unfinished,
    watch_probation,
)
