"""plan(decision, history, view, rules): the steps that a decision needs, in order, each only after the one before is seen. Pure."""

from __future__ import annotations

from math import inf

from policies import archiving
from policies.decisions import Contain, Continue, Decision, Finish, Halt, PlannedStop, Recover, Wait
from policies.facts import UNKNOWN, CheckpointPhase, CheckpointState, Counters, JobPhase, NodeState, View
from policies.history import Bar, History
from policies.quarantine import for_good, may_return
from policies.retention import by_age
from policies.rules import QuarantineRules, Rules
from supervisor import actions
from supervisor.actions import Action

AGENTS_RETURN_S = 5.0
"""A new controller gives the agents that live so long to connect (they try every 2 s at the latest) before it starts others."""
AGENTS_WAIT_S = 15.0
"""So long a new controller launches nothing while a node of the plan has no agent (what no agent hears is lost to the ledger),
and refuses no node for having none.
"""
LISTED_S = 10.0
"""So long the cluster may list a step whose ranks have all told that they ended well: it sees to what they leave."""
NOTHING_DONE = Counters(0, 0, 0, 0, None)


def _checkpoints(view: View) -> tuple[CheckpointState, ...]:
    return () if view.checkpoints is UNKNOWN else view.checkpoints


def _down(attempt: int) -> list[Action]:
    """Fenced, then stopped. What it had not finished is abandoned when it is down (`upkeep`)."""
    return [actions.Fence(attempt), actions.Stop(attempt)]


def _recover(decision: Recover, history: History) -> list[Action]:
    start = decision.start or Counters(decision.checkpoint_step, 0, decision.checkpoint_step, 0, None)
    launch = actions.Launch(
        decision.attempt,
        history.epoch,
        decision.slots,
        decision.checkpoint,
        start if decision.checkpoint else NOTHING_DONE,
        decision.incident,
        decision.skip_samples,
    )
    back = [actions.Restore(decision.checkpoint)] if decision.checkpoint and decision.restores else []
    return [*back, actions.MakeView(decision.attempt, decision.checkpoint), launch]


def _bars(decision: Recover, history: History, rules: QuarantineRules) -> list[Action]:
    """A node that was barred before, not long ago, is barred for good; the others for a time, if the profile says so."""
    if decision.incident is None:
        return []
    number = decision.incident
    again = tuple(n for n in decision.bars if for_good(n, number, history, rules))
    fresh = tuple(n for n in decision.bars if n not in again)
    return [actions.Bar(some, number, bar_s) for some, bar_s in ((fresh, rules.bar_s), (again, None)) if some]


def plan(decision: Decision, history: History, rules: Rules) -> tuple[Action, ...]:
    """The steps of the decision, in order. Those that the world shows already are skipped by the caller (`is_done`)."""
    attempt = history.attempt
    steps: list[Action] = []
    match decision:
        case Contain():
            steps = [actions.Capture(decision.incident, decision.attempt, stacks=not decision.died)]
            if decision.died:
                steps += _down(decision.attempt)
        case Recover():
            if decision.stops is not None:
                steps += _down(decision.stops)
            steps += _bars(decision, history, rules.quarantine)
            steps += _recover(decision, history)
        case PlannedStop():
            if attempt is not None and attempt.closed_at is None:
                steps = _down(decision.attempt) if decision.down else [actions.AskStop(decision.attempt)]
        case Halt():
            if attempt is not None and attempt.closed_at is None:
                steps = _down(attempt.number)
        case Finish():
            steps = [actions.Release()] if history.ended else []  # not before the last save is sealed
        case Wait() | Continue():
            pass  # a launch that was journaled and is not seen is asked for again by `upkeep`
    return tuple(steps)


def upkeep(history: History, view: View, rules: Rules, now: float) -> tuple[Action, ...]:
    """What is always to be done, whatever was decided: agents everywhere, finished saves sealed, old ones deleted."""
    steps: list[Action] = []
    back = history.epoch == 1 or now - history.epoch_began_at >= AGENTS_RETURN_S
    if view.nodes is not UNKNOWN and history.ended is None and back and _takes_steps(view):
        blind = sorted(n.name for n in view.nodes.values() if n.state is NodeState.UP and not n.agent)
        steps += [actions.StartAgent(name) for name in blind]
    steps += _questions(history, view, now)
    steps += _next_job(history, view, now)
    steps += _launch_again(history, view)
    steps += _end_rest(history, view, now)
    steps += _let_go(history, view, rules, now)
    steps += _fresh_saves(history, view)
    steps += _void_saves(history, view)
    steps += [actions.Unbar(b.node, b.incident) for b in history.bars if _is_over(b) and not b.lifted_at]
    steps += _bars_again(history)
    found = _checkpoints(view)
    waiting = sorted((c for c in found if c.phase is CheckpointPhase.FRAMEWORK_DONE), key=lambda c: (c.attempt, c.step))
    if waiting:
        # in an incident the newest is worth the most; else they are completed in the order in which they were made
        steps.append(actions.Seal(waiting[-1 if history.incident else 0].id))
    protected = needed_saves(history)
    if actions.superfluous(view, rules.checkpoint.keep, protected) and not waiting:
        steps.append(actions.Retain(by_age(found)[-1].id, rules.checkpoint.keep, protected))
    return (*steps, *_chores(history, view, rules, now))


def _is_over(bar: Bar) -> bool:
    """It has come back, or a person says that others may have it. With our drain it might never be in a job to be checked."""
    return bar.returned_at is not None or bool(bar.lifted_by)


def _takes_steps(view: View) -> bool:
    """Can anything be launched on the nodes now? Not while their job ends or waits."""
    return view.job is None or view.job.phase is JobPhase.RUNNING


def _questions(history: History, view: View, now: float) -> list[Action]:
    """Every spare is asked to look at itself anew as soon as an incident is open, while the old attempt is being stopped: the
    one that is chosen then has answered by the time that it is needed.
    """
    attempt, incident = history.attempt, history.incident
    waits = attempt is not None and incident is not None and incident.attempt == attempt.number
    if attempt is None or incident is None or not waits or history.halted or view.nodes is UNKNOWN:
        return []
    barred = history.barred(now)
    free = [n for n in view.nodes.values() if n.name not in attempt.slots and n.name not in barred]
    able = sorted(n.name for n in free if n.state is NodeState.UP and n.agent and not n.drained_by_other)
    asked = [actions.Check(name, incident.number) for name in able]
    return [one for one in asked if not actions.is_done(one, view)]


def _bars_again(history: History) -> list[Action]:
    """What the cluster was to be told of a bar and may not have heard: it was away, or the controller died as it asked."""
    back = {b.incident for b in history.bars if _is_over(b)}
    unheard = [i.action for i in history.intents.values() if i.failed or i.epoch != history.epoch]
    if history.ended is not None:
        return []
    bars = [a for a in unheard if isinstance(a, actions.Bar) and a.incident not in back]
    return [*bars, *(a for a in unheard if isinstance(a, actions.Unbar))]


def unanswered(decision: Decision, view: View) -> frozenset[str]:
    """Spares of a plan that have not looked at themselves anew yet: nothing is launched on them before they have."""
    if not isinstance(decision, Recover) or decision.incident is None or view.nodes is UNKNOWN:
        return frozenset()
    asked = (actions.Check(new, decision.incident) for _, _, new in decision.swaps)
    return frozenset(one.node for one in asked if not actions.is_done(one, view))


def _chores(history: History, view: View, rules: Rules, now: float) -> list[Action]:
    """Copies and readings while the run trains, each one save at a time."""
    copy, read = _chores_due(history, view, rules, now)
    steps: list[Action] = []
    if copy is not None and copy.at <= now:
        steps.append(actions.Archive(copy.checkpoint, needed_saves(history)))
    if read is not None and read.at <= now:
        steps.append(
            actions.Scrub(read.checkpoint, next(c.read_at for c in _checkpoints(view) if c.id == read.checkpoint))
        )
    return steps


def _chores_due(
    history: History, view: View, rules: Rules, now: float
) -> tuple[archiving.Due | None, archiving.Due | None]:
    if history.mode == "observe" or not archiving.is_calm(history):
        return None, None
    return archiving.to_archive(view, history, rules, now), archiving.to_read(view, rules)


def chores_at(history: History, view: View, rules: Rules, now: float = inf) -> float:
    """When the next copy or reading is to begin, wall seconds; infinite while none is to come."""
    copy, read = _chores_due(history, view, rules, now)
    known = (("archive", copy), ("scrub", read))
    open_ones = history.intents.keys()
    return min((d.at for kind, d in known if d is not None and f"{kind}:{d.checkpoint}" not in open_ones), default=inf)


def held_until(history: History, rules: Rules) -> float:
    """Until when (wall seconds) a run that has halted holds its nodes, so that a person can look at them.

    Whoever asks it to stop has looked, or the allocation ends: then nothing is held. Infinite when nothing is halted.
    """
    if history.halted is None:
        return inf
    return history.halted.at + (0.0 if history.stop_asked else rules.hold_s)


def _end_rest(history: History, view: View, now: float) -> list[Action]:
    """All ranks have ended well, and the cluster still lists their step, as when a slurmstepd of it is gone."""
    attempt, at = history.attempt, history.decided_at
    if attempt is None or attempt.closed_at is not None or not isinstance(history.decision, Finish) or at is None:
        return []
    late = attempt.number in view.steps_running and now - at >= LISTED_S
    return [actions.Stop(attempt.number)] if late else []


def _let_go(history: History, view: View, rules: Rules, now: float) -> list[Action]:
    attempt = history.attempt
    down = attempt is None or attempt.closed_at is not None
    over = history.halted is not None and down and now >= held_until(history, rules)
    return [actions.Release()] if over and not view.released else []


def _next_job(history: History, view: View, now: float) -> list[Action]:
    """Once the run has left its job, and everything of it is sealed."""
    job = view.job
    if history.ended != "next-job" or job is None or history.job is None:
        return []
    if job.next.isdigit():  # it waits for the end of this one, and this one for the end of its steps
        return [] if view.released else [actions.Release()]
    if not job.can_follow:
        return []
    slots = history.attempt.slots if history.attempt else ()
    nodes = () if view.nodes is UNKNOWN else view.nodes.values()
    ill = {n.name for n in nodes if n.unhealthy and n.name not in slots}  # spares that Slurm would give again
    # What may return is checked in a job that has it: left out of each, it would never come back.
    kept_out = history.barred(now) - may_return(history, now) | ill
    action = actions.NextJob(history.job.id, history.job.start, tuple(sorted(kept_out)))
    return [] if actions.is_done(action, view) else [action]


def _launch_again(history: History, view: View) -> list[Action]:
    """A launch that was intended and does not show everywhere: the controller died as it asked, or the asking was lost."""
    attempt, incident = history.attempt, history.incident
    if attempt is None or attempt.closed_at is not None or history.halted or view.nodes is UNKNOWN:
        return []
    if not _takes_steps(view):
        return []
    told = attempt.number in view.launched and not view.untold
    if told or (incident is not None and incident.attempt == attempt.number):
        return []
    intent = history.intents.get(f"launch:{attempt.number}")
    return [intent.action] if intent is not None and isinstance(intent.action, actions.Launch) else []


def _void_saves(history: History, view: View) -> list[Action]:
    """What an attempt had not finished when it was down is void: a node that thaws must not complete it."""
    down = {a.number: a.closed_at for a in history.attempts if a.closed_at is not None}
    void = tuple(
        c.id
        for c in _checkpoints(view)
        if c.phase is CheckpointPhase.IN_PROGRESS and (view.store_as_of or 0.0) >= down.get(c.attempt, float("inf"))
    )
    return [actions.Abandon(void)] if void else []


def _fresh_saves(history: History, view: View) -> list[Action]:
    attempt = view.attempt
    if attempt is None:
        return []
    told = {f"a{s.attempt:04d}-i{s.step:07d}" for s in attempt.saves if s.state != "failed"}
    fresh = tuple(sorted(told - history.begun))
    return [actions.Begin(fresh)] if fresh else []


def needed_saves(history: History) -> tuple[str, ...]:
    """What the open plan or the newest attempt starts from, and what is being copied, is never deleted."""
    wanted = {history.attempt.checkpoint if history.attempt else None, history.choice.checkpoint}
    moving = (i.action for i in history.intents.values())
    wanted |= {a.checkpoint for a in moving if isinstance(a, actions.Archive | actions.Restore)}
    if isinstance(history.decision, Recover):
        wanted.add(history.decision.checkpoint)
    return tuple(sorted(c for c in wanted if c is not None))
