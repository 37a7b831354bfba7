"""A plan that was made stays until it is done, or the world contradicts it. Pure."""

from __future__ import annotations

from policies.decisions import Decision, Recover
from policies.facts import UNKNOWN, CheckpointPhase, NodeState, NodeView
from policies.situation import Situation, everywhere, question


def keep_recovering(s: Situation) -> Decision | None:
    """A Recover is sticky until it is settled or contradicted by the world."""
    decision = s.history.decision
    return decision if isinstance(decision, Recover) and contradiction(s, decision) is None else None


def contradiction(s: Situation, decision: Recover) -> str | None:
    """Why the world no longer allows a plan; None while it stands."""
    if s.view.nodes is UNKNOWN or s.view.checkpoints is UNKNOWN:
        return None
    for name in decision.slots:
        node = s.view.nodes.get(name)
        if node is None or node.state is NodeState.DOWN:
            return f"{name} is gone"
        if node.state is NodeState.SILENT and s.now - node.since >= s.rules.node.silent_s:
            return f"{name} does not answer"
        if name in {new for _, _, new in decision.swaps} and (why := _unfit_spare(s, decision, node)):
            return why
    if decision.checkpoint is not None:
        unfit = [r for r in s.history.unfit if r.id == decision.checkpoint]
        if any(decision.restores is None or r.location == "archive" for r in unfit):
            return f"checkpoint {decision.checkpoint} could not be made ready"
        return _checkpoint_gone(s, decision)
    if done := [c.id for c in everywhere(s) if c.phase is CheckpointPhase.COMPLETED]:
        return f"{done[-1]} has been completed since: nothing is thrown away unseen"
    return None


def _unfit_spare(s: Situation, decision: Recover, node: NodeView) -> str | None:
    """Why a spare that was chosen can't take its slot after all. What could not be checked is no reason against it."""
    if node.drained_by_other:
        return f"{node.name} was drained by somebody else"
    if node.unhealthy:
        return f"{node.name} is unhealthy: {node.unhealthy[0]}"
    asked = question(s.history, s.rules, s.now) if decision.incident is not None else None
    if asked is not None and node.agent and asked.is_overdue(node):
        return f"{node.name} was not checked again within {s.rules.node.check_s:g} s, as it was asked to"
    return None


def _checkpoint_gone(s: Situation, decision: Recover) -> str | None:
    """Why a plan's checkpoint can't be started from any more. What is to come from the archive need not be in the store yet."""
    away = decision.restores is not None
    if away and s.view.archive is UNKNOWN:
        return None
    known = [c for c in everywhere(s) if c.id == decision.checkpoint and (away or c.location == "store")]
    found = next((c for c in known if c.phase is CheckpointPhase.COMPLETED), None)
    if found is None:
        return f"checkpoint {decision.checkpoint} is no longer completed"
    if found.manifest_hash != decision.manifest_hash:
        return f"checkpoint {decision.checkpoint} has another manifest"
    return None
