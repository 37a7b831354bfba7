"""fold(history, entry) -> History: the only way in which the past is remembered. Pure, and total over the entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from policies import ledger
from policies.decisions import Recover
from policies.facts import Copied, Counters, Rejected
from policies.history import (
    Answered,
    Attempt,
    Bar,
    Books,
    Choice,
    Halted,
    History,
    HoldingJob,
    Incident,
    Intent,
    StopWish,
    Times,
)
from policies.leaving import SIGNALS
from policies.reasons import Reason
from policies.skipping import merge
from supervisor import actions, remembered_tellings
from supervisor.journal.entries import (
    Approved,
    AttemptAccepted,
    AttemptClosed,
    Carried,
    CaughtUp,
    CheckpointCompleted,
    Chosen,
    Decided,
    Diagnosed,
    DrainRefused,
    Ended,
    EpochBegan,
    HaltedEntry,
    IncidentClosed,
    IncidentMarked,
    IncidentOpened,
    Intended,
    JobBegan,
    Looked,
    ModeSet,
    NodeReturned,
    Paused,
    Refused,
    Reopened,
    RequestAnswered,
    Resumed,
    RulesSet,
    RunStarted,
    Settled,
    Stamped,
    StopAsked,
    Told,
    Unbarred,
    Withdrawn,
)


def fold_all(history: History, stamped: Iterable[Stamped]) -> History:
    """Fold many."""
    for one in stamped:
        history = fold(history, one)
    return history


def _incident(history: History, number: int, **changes: object) -> History:
    incidents = tuple(
        replace(i, **changes) if i.number == number else i  # type: ignore[arg-type]
        for i in history.incidents
    )
    return replace(history, incidents=incidents)


def _attempt(history: History, number: int, **changes: object) -> History:
    attempts = tuple(
        replace(a, **changes) if a.number == number else a  # type: ignore[arg-type]
        for a in history.attempts
    )
    return replace(history, attempts=attempts)


def _times(history: History, number: int, **moments: float | None) -> History:
    """Set moments of an incident; a moment that is set stays."""
    for incident in history.incidents:
        if incident.number == number:
            fresh = {k: v for k, v in moments.items() if getattr(incident.times, k) is None}
            return _incident(history, number, times=replace(incident.times, **fresh))
    return history


def _no_plan(history: History) -> History:
    return replace(history, decision=None, decided_at=None, decision_digest=None)


def _open(history: History, entry: IncidentOpened, at: float) -> History:
    if entry.follows is not None:
        history = _incident(history, entry.follows, closed=True)
    times = Times(last_good=entry.last_good, detected=entry.detected, confirmed=at)
    incident = Incident(
        number=entry.number,
        attempt=entry.attempt,
        trouble=entry.trouble,
        times=times,
        frontier=entry.frontier,
        frontier_samples=entry.frontier_samples,
        follows=entry.follows,
    )
    fresh = _no_plan(replace(history, incidents=(*history.incidents, incident), choice=Choice()))
    return replace(fresh, approvals=frozenset(), refused=frozenset())


def _decide(history: History, entry: Decided, at: float) -> History:
    history = replace(history, decision=entry.decision, decided_at=at, decision_digest=entry.digest)
    decision = entry.decision
    if isinstance(decision, Recover) and decision.incident is not None:
        history = _times(history, decision.incident, decided=at)
        history = _incident(
            history,
            decision.incident,
            checkpoint=decision.checkpoint,
            checkpoint_step=decision.checkpoint_step,
            checkpoint_samples=decision.start.samples if decision.start else 0,
            rejected=decision.rejected,
            swaps=decision.swaps,
        )
    return history


def _roll_back(history: History, launch: actions.Launch) -> Books:
    """What the attempt before had done beyond the checkpoint that this one starts from is cost, never progress."""
    before = history.attempt
    if before is None or before.ended is None:
        return history.books
    return ledger.roll_back(history.books, before.ended, launch.start)


def _lift(bar: Bar, entry: Unbarred, at: float) -> Bar:
    """Its time is over now. That it was barred stays known: a node that is barred again soon is barred for good."""
    if bar.node not in entry.nodes or bar.returned_at is not None:
        return bar
    return replace(bar, until=at if bar.until is None else min(bar.until, at), lifted_by=entry.who)


def _is_bar_of(bar: Bar, action: actions.Unbar) -> bool:
    return (bar.node, bar.incident) == (action.node, action.incident)


def _intend(history: History, action: actions.Action, epoch: int, at: float) -> History:
    name = actions.key(action)
    before = history.intents.get(name)
    intent = Intent(name, at, before.tries + 1 if before else 1, epoch, action)
    history = replace(history, intents={**history.intents, name: intent})
    if isinstance(action, actions.Bar):
        reason = next((i.trouble.reason for i in history.incidents if i.number == action.incident), Reason.NODE_LOST)
        until = None if action.bar_s is None else at + action.bar_s
        # One that is asked for again, because the cluster did not hear it, has its bar already.
        known = {b.node for b in history.bars if b.incident == action.incident}
        new = tuple(Bar(n, at, action.incident, reason, until) for n in action.nodes if n not in known)
        before_it = next((i.barred for i in history.incidents if i.number == action.incident), ())
        history = _incident(history, action.incident, barred=(*before_it, *(b.node for b in new)))
        return replace(history, bars=(*history.bars, *new))
    if isinstance(action, actions.Unbar):
        lifted = (replace(b, lifted_at=at) if _is_bar_of(b, action) else b for b in history.bars)
        return replace(history, bars=tuple(lifted))
    if isinstance(action, actions.Begin):
        return replace(history, begun=frozenset((*history.begun, *action.checkpoints)))
    if isinstance(action, actions.Launch) and all(a.number != action.attempt for a in history.attempts):
        attempt = Attempt(action.attempt, action.slots, action.checkpoint, action.start.step, at, action.incident)
        attempt = replace(attempt, epoch=action.epoch, began=action.start, skip_samples=action.skip_samples)
        if action.incident is not None:
            history = _times(history, action.incident, relaunched=at)
            plans = (*history.plans, (action.incident, history.decision_digest or ""))
            history = replace(history, plans=plans)
        history = replace(history, books=_roll_back(history, action))
        stop_asked = history.stop_asked if action.incident is not None else None  # a fault does not undo the wish
        fresh = replace(history, attempts=(*history.attempts, attempt), ended=None, stop_asked=stop_asked)
        return _no_plan(replace(fresh, begun=frozenset()))
    return history


def _reopen(history: History) -> History:
    reopened = history.attempt.number if history.attempt else 0
    return replace(history, ended=None, stop_asked=None, reopened=reopened)


def _job_began(history: History, entry: JobBegan, at: float) -> History:
    """What waited for its next job goes on. A wish to leave the job before is fulfilled, however that came to its end."""
    wish, barren = history.stop_asked, _barren(history)
    fulfilled = wish is not None and (wish.then != "end" or wish.who in SIGNALS)
    if history.job is not None and (fulfilled or history.ended == "next-job"):
        history = _reopen(history)
    saves = len(history.completed)
    job = HoldingJob(entry.id, entry.start, at, history.job is not None, saves, barren)
    return replace(history, job=job)


def _barren(history: History) -> int:
    """How many jobs in a row, up to the one that holds the nodes, were left for the next one without a completed save."""
    job, attempt = history.job, history.attempt
    if job is None or attempt is None or history.ended != "next-job" or len(history.completed) > job.saves:
        return 0
    trained = attempt.intended_at >= job.at
    lifted = history.resumed_at is not None and history.resumed_at >= job.at
    return job.barren + 1 if trained and not lifted else 0


def _close_attempt(history: History, entry: AttemptClosed, at: float) -> History:
    attempt = next(a for a in history.attempts if a.number == entry.attempt)
    began = attempt.began or Counters(attempt.start_step, 0, attempt.start_step, 0, None)
    books = ledger.close_attempt(history.books, began, entry.ended)
    history = _attempt(history, entry.attempt, closed_at=at, last_step=entry.ended.step, ended=entry.ended)
    incident = history.incident
    if incident is not None and incident.attempt == entry.attempt:
        history = _times(history, incident.number, stopped=at)
    return replace(history, books=books)


def _settle(history: History, entry: Settled, at: float) -> History:
    history = _copied(history, entry, at)
    intents = {k: v for k, v in history.intents.items() if k != entry.key}
    if entry.outcome == "failed" and entry.key in history.intents:
        intents[entry.key] = replace(history.intents[entry.key], failed=True)  # not asked for again before its time
    history = replace(history, intents=intents)
    if entry.outcome == "failed" and entry.key.startswith("make-view:"):
        checkpoint = entry.key.split(":", 2)[2]
        came_back = any(c.id == checkpoint for c in history.restored)  # then the copy that it came from is no better
        bad = Rejected(checkpoint, entry.text, "archive" if came_back else "store")
        return replace(history, unfit=(*history.unfit, bad))
    if entry.outcome == "failed" and entry.key.startswith("restore:"):
        bad = Rejected(entry.key.split(":", 1)[1], entry.text, "archive")
        return replace(history, unfit=(*history.unfit, bad))
    return history


def _copied(history: History, entry: Settled, at: float) -> History:
    """A save that has come into the archive, or back from it."""
    intent = history.intents.get(entry.key)
    action = intent.action if intent else None
    if intent is None or entry.outcome != "seen" or not isinstance(action, actions.Archive | actions.Restore):
        return history
    size = next((c.bytes for c in history.save_costs if c.id == action.checkpoint), 0)
    one = Copied(action.checkpoint, at, size, at - intent.at if intent.tries == 1 else None)
    if isinstance(action, actions.Archive):
        return replace(history, archived=one)
    # What was wrong with the save that lay in the store before is over; a copy that was refused stays refused.
    unfit = tuple(r for r in history.unfit if r.id != one.id or r.location == "archive")
    intents = {
        k: v for k, v in history.intents.items() if not (k.startswith("make-view:") and k.endswith(f":{one.id}"))
    }
    return replace(history, restored=(*history.restored, one), unfit=unfit, intents=intents)


def fold(history: History, stamped: Stamped) -> History:
    """What is remembered after one more entry."""
    entry, at = stamped.entry, stamped.at
    match entry:
        case EpochBegan():
            return replace(remembered_tellings.new_epoch(history), epoch=entry.epoch, epoch_began_at=at)
        case RunStarted():
            return replace(history, run=entry.run, mode=entry.mode, started_at=at)
        case ModeSet():
            return replace(history, mode=entry.mode)
        case Paused():
            return replace(history, paused=True)
        case Resumed():
            skip = merge(history.choice.skip_samples, entry.skip_samples)
            kept = tuple(dict.fromkeys((*history.choice.keep_nodes, *entry.keep_nodes)))
            choice = replace(history.choice, skip_samples=skip, keep_nodes=kept)
            history = remembered_tellings.forget_plans(history)
            refused = replace(history, paused=False, refused=frozenset(), choice=choice)
            return refused if history.halted is None else _no_plan(replace(refused, halted=None, resumed_at=at))
        case IncidentOpened():
            return _open(history, entry, at)
        case IncidentMarked():
            if entry.what == "evidence":
                history = _incident(history, entry.number, evidence=entry.text)
            return _times(history, entry.number, **{entry.what: at})
        case Diagnosed():
            return _incident(history, entry.incident, diagnosis=entry.diagnosis)
        case Decided():
            return _decide(history, entry, at)
        case Withdrawn():
            return _no_plan(remembered_tellings.forget_plan(history, entry.digest))
        case Chosen():
            number = history.incident.number if history.incident else 0
            history = remembered_tellings.forget_plan(history, history.decision_digest)
            return _no_plan(replace(_incident(history, number, plan_changed=True), choice=entry.choice))
        case Approved():
            if history.incident is not None:
                number = history.incident.number
                history = _times(history, number, approved=at)
                history = _incident(history, number, approved_by=entry.who)
            return replace(history, approvals=history.approvals | {entry.digest})
        case Refused():
            number = history.incident.number if history.incident else 0
            history = _incident(history, number, plan_refused=True)
            return replace(history, refused=history.refused | {entry.digest})
        case Intended():
            return _intend(history, entry.action, stamped.epoch, at)
        case Settled():
            return _settle(history, entry, at)
        case AttemptAccepted():
            return _attempt(history, entry.attempt, accepted_at=at, limited=entry.limited)
        case AttemptClosed():
            return _close_attempt(history, entry, at)
        case IncidentClosed():
            history = _times(_incident(history, entry.number, closed=True), entry.number, next_good=at)
            current = history.attempt is not None and history.attempt.closed_at is None
            open_plan = isinstance(history.decision, Recover) and history.decision.incident == entry.number
            return _no_plan(history) if current and open_plan else history
        case CaughtUp():
            history = _times(history, entry.number, caught_up=at)
            return _incident(history, entry.number, replay=entry.replay)
        case CheckpointCompleted():
            completed = (*history.completed, entry.cost.id)
            return replace(history, completed=completed, save_costs=(*history.save_costs, entry.cost))
        case HaltedEntry():
            halted = Halted(at, entry.reason, entry.seen, entry.lifts, entry.incident)
            asked = entry.reason is Reason.PERSON_HALTED
            return replace(history, halted=halted, asked_to_halt=asked, stop_asked=None)
        case StopAsked():
            wish = StopWish(entry.who, at, entry.then, entry.after_save, entry.why)
            return replace(history, stop_asked=wish)
        case JobBegan():
            return _job_began(history, entry, at)
        case Ended():
            return replace(history, ended=entry.how)
        case Reopened():
            return _reopen(history)
        case NodeReturned():
            back = (
                replace(b, returned_at=at) if b.node == entry.node and not b.returned_at else b for b in history.bars
            )
            return replace(history, bars=tuple(back))
        case Unbarred():
            return replace(history, bars=tuple(_lift(b, entry, at) for b in history.bars))
        case DrainRefused():
            return replace(history, drain_refused=entry.why)
        case RulesSet():
            return replace(history, rules=entry.rules)
        case Looked():
            return history
        case Told():
            return remembered_tellings.told(history, entry, at)
        case Carried():
            return remembered_tellings.carried(history, entry)
        case RequestAnswered():
            answered = Answered(entry.outcome, entry.text, entry.exit)
            return replace(history, requests={**history.requests, entry.id: answered})
        case _:
            assert_never(entry)
