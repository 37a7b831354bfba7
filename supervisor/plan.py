"""plan(decision, history, view, rules): the steps that a decision needs, in order, each only after the one before is seen. Pure."""

from __future__ import annotations

from policies.facts import (
    UNKNOWN,
    CheckpointPhase,
    CheckpointState,
    Contain,
    Counters,
    Decision,
    Finish,
    Halt,
    History,
    NodeState,
    PlannedStop,
    Recover,
    View,
)
from policies.rules import Rules
from supervisor import actions
from supervisor.actions import Action

AGENTS_RETURN_S = 5.0
"""A new controller gives the agents that live so long to connect (they try every 2 s at the latest) before it starts others."""
NOTHING_DONE = Counters(0, 0, 0, 0, None)


def _checkpoints(view: View) -> tuple[CheckpointState, ...]:
    return () if view.checkpoints is UNKNOWN else view.checkpoints


def _down(attempt: int, view: View) -> list[Action]:
    """Fenced, stopped, and what it had not finished is void."""
    unfinished = tuple(
        c.id for c in _checkpoints(view) if c.attempt == attempt and c.phase is CheckpointPhase.IN_PROGRESS
    )
    steps: list[Action] = [actions.Fence(attempt), actions.Stop(attempt)]
    return [*steps, actions.Abandon(unfinished)] if unfinished else steps


def _recover(decision: Recover, history: History) -> list[Action]:
    start = decision.start or Counters(decision.checkpoint_step, 0, decision.checkpoint_step, 0, None)
    launch = actions.Launch(
        decision.attempt,
        history.epoch,
        decision.slots,
        decision.checkpoint,
        start if decision.checkpoint else NOTHING_DONE,
        decision.incident,
    )
    return [actions.MakeView(decision.attempt, decision.checkpoint), launch]


def plan(decision: Decision, history: History, view: View, rules: Rules) -> tuple[Action, ...]:
    """The steps of the decision, in order. Those that the world shows already are skipped by the caller (`is_done`)."""
    attempt = history.attempt
    steps: list[Action] = []
    match decision:
        case Contain():
            steps = [actions.Capture(decision.incident, decision.attempt, stacks=not decision.died)]
            if decision.died:
                steps += _down(decision.attempt, view)
        case Recover():
            if decision.stops is not None:
                steps += _down(decision.stops, view)
            if decision.bars and decision.incident is not None:
                steps.append(actions.Bar(decision.bars, decision.incident, rules.quarantine.bar_s))
            steps += _recover(decision, history)
        case PlannedStop():
            steps = [actions.AskStop(decision.attempt)]
        case Halt():
            if attempt is not None and attempt.closed_at is None:
                steps = _down(attempt.number, view)
        case Finish():
            steps = [actions.Release()] if history.ended else []  # not before the last save is sealed
        case _:
            pass
    return tuple(steps)


def upkeep(history: History, view: View, rules: Rules, now: float) -> tuple[Action, ...]:
    """What is always to be done, whatever was decided: agents everywhere, finished saves sealed, old ones deleted."""
    steps: list[Action] = []
    back = history.epoch == 1 or now - history.epoch_began_at >= AGENTS_RETURN_S
    if view.nodes is not UNKNOWN and history.ended is None and back:
        blind = sorted(n.name for n in view.nodes.values() if n.state is NodeState.UP and not n.agent)
        steps += [actions.StartAgent(name) for name in blind]
    steps += _fresh_saves(history, view)
    found = _checkpoints(view)
    waiting = sorted((c for c in found if c.phase is CheckpointPhase.FRAMEWORK_DONE), key=lambda c: -c.step)
    if waiting:
        steps.append(actions.Seal(waiting[0].id))
    completed = sorted((c for c in found if c.phase is CheckpointPhase.COMPLETED), key=lambda c: c.completed_at or 0.0)
    if len(completed) > rules.checkpoint.keep and not waiting:
        steps.append(actions.Retain(completed[-1].id, rules.checkpoint.keep, _protected(history)))
    return tuple(steps)


def _fresh_saves(history: History, view: View) -> list[Action]:
    attempt = view.attempt
    if attempt is None:
        return []
    told = {f"a{s.attempt:04d}-i{s.step:07d}" for s in attempt.saves if s.state != "failed"}
    fresh = tuple(sorted(told - history.begun))
    return [actions.Begin(fresh)] if fresh else []


def _protected(history: History) -> tuple[str, ...]:
    """What the open plan or the newest attempt starts from is never deleted."""
    wanted = {history.attempt.checkpoint if history.attempt else None, history.choice.checkpoint}
    if isinstance(history.decision, Recover):
        wanted.add(history.decision.checkpoint)
    return tuple(sorted(c for c in wanted if c is not None))
