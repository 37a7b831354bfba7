"""gate(action, decision, ...): may this effect happen now, in this mode? Each action is judged, not the decision as a whole. Pure.

| | observe | approve | auto | paused |
|---|---|---|---|---|
| watch, capture, agents, checks of spares, first start | yes | yes | yes | yes; no start |
| seal, copy into the archive, read again | no | yes | yes | yes |
| abandon, retention, lifting our own drain | no | yes | yes | no |
| next job | no | when a person has asked for it | yes | no |
| fence and stop a dead attempt | no | yes | yes | no |
| stop a stalled attempt, quarantine, restore from the archive, relaunch | no | asks | cleared classes; asks for the rest | no |
| stop a stalled attempt of a run that halts | no | no | cleared classes | no |
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from policies.decisions import Contain, Decision, Finish, Halt, PlannedStop, Recover
from policies.history import History
from policies.rules import Rules
from supervisor import actions
from supervisor.actions import Action


@dataclass(frozen=True, slots=True)
class Permitted:
    """It may happen."""


@dataclass(frozen=True, slots=True)
class Held:
    """It may not happen now. `asks`: a person can permit it by approving the digest."""

    why: str
    asks: bool


Permission = Permitted | Held
_YES = Permitted()


def digest(decision: Decision) -> str | None:
    """What a person approves: the effects alone.

    Incident, next attempt, slot map, nodes barred, checkpoint and manifest hash, samples left out, and whether the
    checkpoint comes from the archive.
    """
    if not isinstance(decision, Recover):
        return None
    effects = (
        str(decision.incident),
        str(decision.attempt),
        ",".join(decision.slots),
        ",".join(decision.bars),
        str(decision.checkpoint),
        str(decision.manifest_hash),
        *(f"skip {first}:{end}" for first, end in decision.skip_samples),
        *(("restore",) if decision.restores else ()),
    )
    return blake2b("\n".join(effects).encode(), digest_size=8).hexdigest()


def _recover(decision: Recover, history: History, rules: Rules) -> Permission:
    if digest(decision) in history.approvals:
        return _YES
    if history.mode == "approve":
        return Held("waits for a person (mode approve)", asks=True)
    if decision.asks:
        return Held(f"waits for a person: {decision.text}", asks=True)
    if any(a.limited for a in history.attempts[-1:]):
        return Held("waits for a person: only log lines are known of this run", asks=True)
    if decision.fault is not None and decision.fault not in rules.cleared:
        return Held(f"waits for a person: {decision.fault.value} is not cleared for automation", asks=True)
    return _YES


def may_only_be_slow(history: History, rules: Rules) -> bool:
    """A halt says that nothing more is started. Ranks that stall are stopped only where automation is cleared for it."""
    incident = history.incident
    if incident is None or incident.trouble.died:
        return False
    return history.mode == "approve" or incident.fault not in rules.cleared


def gate(action: Action, decision: Decision, history: History, rules: Rules) -> Permission:
    """Permitted or Held, with the reason in words."""
    match action:
        case actions.StartAgent() | actions.Check() | actions.Capture() | actions.Begin() | actions.Release():
            return _YES
        case actions.Seal() | actions.Archive() | actions.Scrub():
            return Held(f"mode observe: would {action.kind} it", asks=False) if history.mode == "observe" else _YES
        case _ if history.paused:
            return Held("the run is paused", asks=False)
        case actions.Launch() | actions.Bar() if actions.key(action) in history.intents:
            return _YES  # it was permitted when its intent was journaled
        case _ if isinstance(decision, Recover) and decision.incident is None:
            return _YES  # the person who started the run asked for it
        case _ if isinstance(decision, PlannedStop):
            return _YES  # a person or the end of the allocation asked for it
        case _ if isinstance(decision, Halt) and history.asked_to_halt:
            return _YES
        case _ if history.mode == "observe":
            return Held("mode observe: says what it would do", asks=False)
        case actions.Abandon() | actions.Retain() | actions.Unbar() | actions.NextJob():
            return _YES  # in mode approve nobody but a person asks for a next job (`policies/leaving.py`)
        case _ if isinstance(decision, Halt) and may_only_be_slow(history, rules):
            return Held("nothing has died: a person stops it (relight halt)", asks=False)
        case _ if isinstance(decision, Contain | Halt | Finish):
            return _YES
        case _ if isinstance(decision, Recover):
            return _recover(decision, history, rules)
        case _:
            return Held("nothing was decided that needs it", asks=False)
