"""Has the run stopped, or may it not go on as it is? Pure. What can't be seen is no trouble; what is seen first is named."""

from __future__ import annotations

from collections.abc import Mapping

from policies.facts import UNKNOWN, AttemptView, FaultClass, NodeState, NodeView, Phase, RankExit, View
from policies.history import Attempt, History, Trouble
from policies.layout import Layout
from policies.reasons import Reason
from policies.rules import Rules

_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE"} | {
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
REFUSED_CODE = 94
"""The exit code of a rank shim that refused to start (docs/contracts.md, section 2)."""


def how(end: RankExit) -> str:
    """How a rank ended, in words."""
    if end.refused is not None:
        return f"was refused: {end.refused}"
    if end.signal is not None:
        return f"ended by {_SIGNALS.get(end.signal, f'signal {end.signal}')}"
    return f"ended with code {end.code}"


def stall_limit(view: AttemptView, rules: Rules) -> float:
    """How long the phase that the ranks are in may go without an advance, seconds."""
    limits = rules.stall
    match view.phase:
        case Phase.STEP:
            known = max(limits.step_floor_s, limits.step_factor * view.slowest_step_s)
            # the first step of an attempt compiles, allocates and connects: it belongs to the start-up
            return known if view.first_step is not None else max(limits.start_up_s, known)
        case Phase.START_UP:
            return limits.start_up_s
        case Phase.LOAD:
            return limits.load_s
        case Phase.SAVE:
            return limits.save_s
        case Phase.EVALUATION:
            return limits.evaluation_s
        case Phase.SHUTDOWN:
            return limits.shutdown_s


BEGUN_S = 5.0
"""So long after a launch was asked for, ranks that begin have said so."""
LISTEN_S = 10.0
"""A new controller hears the agents out (they connect within 2 s and tell again what they know) before it misses anything."""


def idle_since(attempt: Attempt, view: AttemptView) -> float:
    """The moment of the last advance; the launch, when there was none."""
    return max(attempt.intended_at, view.last_advance or 0.0)


def stall_at(history: History, view: View, rules: Rules) -> float | None:
    """When the attempt will count as stalled if nothing moves; None while that can't be told."""
    attempt, shown = history.attempt, view.attempt
    if attempt is None or shown is None or attempt.closed_at is not None or shown.number != attempt.number:
        return None
    due = idle_since(attempt, shown) + stall_limit(shown, rules) + rules.stall.confirm_s
    return max(due, history.epoch_began_at + LISTEN_S)


def silent_nodes(
    slots: tuple[str, ...], nodes: Mapping[str, NodeView], rules: Rules, now: float
) -> tuple[str, ...] | None:
    """The slots' nodes that have been silent long enough; None when most nodes are silent: then the eye is blind, not they dead."""
    seen = [n for n in nodes.values() if n.state is not NodeState.DOWN]
    silent = [n.name for n in seen if n.state is NodeState.SILENT and now - n.since >= rules.node.silent_s]
    answering = sum(1 for n in seen if n.state is NodeState.UP)
    if silent and answering < rules.node.others_answer_share * len(seen):
        return None
    return tuple(name for name in silent if name in slots)


def _exits(attempt: Attempt, view: AttemptView) -> Trouble | None:
    bad = sorted((e for e in view.exits if not e.clean), key=lambda e: (e.wall, e.rank))
    if not bad:
        return None
    first = bad[0]
    refused = first.refused is not None or first.code == REFUSED_CODE
    fault, reason = (
        (FaultClass.LAUNCH_FAILED, Reason.LAUNCH_FAILED)
        if refused
        else (FaultClass.RANK_DIED, Reason.RANK_DIED)
        if first.signal is not None
        else (FaultClass.RANK_FAILED, Reason.RANK_FAILED)
    )
    text = f"rank {first.rank} on {first.node} {how(first)}"
    return Trouble(fault, reason, first.wall, attempt.number, True, text, (first.rank,), (first.node,))


def _lost_nodes(attempt: Attempt, nodes: Mapping[str, NodeView]) -> Trouble | None:
    down = [nodes[n] for n in attempt.slots if n in nodes and nodes[n].state is NodeState.DOWN]
    if not down:
        return None
    names = tuple(n.name for n in down)
    since = min(n.since for n in down)
    text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} gone"
    return Trouble(FaultClass.NODE_LOST, Reason.NODE_LOST, since, attempt.number, True, text, (), names)


def _silent(attempt: Attempt, nodes: Mapping[str, NodeView], names: tuple[str, ...]) -> Trouble:
    since = min(nodes[n].since for n in names)
    text = f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not answer, the other nodes do"
    return Trouble(FaultClass.NODE_SILENT, Reason.NODE_SILENT, since, attempt.number, False, text, (), names)


def _stall(attempt: Attempt, view: AttemptView, layout: Layout, rules: Rules, now: float) -> Trouble | None:
    idle = now - idle_since(attempt, view)
    limit = stall_limit(view, rules)
    if idle < limit + rules.stall.confirm_s:
        return None
    what = f"after step {view.frontier}" if view.phase is Phase.STEP else f"in {view.phase.value}"
    text = f"no rank has moved for {idle:.1f} s {what} (limit {limit:.1f} s)"
    at = idle_since(attempt, view) + limit
    nodes = tuple(dict.fromkeys(attempt.slots[layout.slot_of(r)] for r in view.behind))
    return Trouble(FaultClass.STALL, Reason.STALL, at, attempt.number, False, text, view.behind, nodes)


def _save_stuck(attempt: Attempt, view: AttemptView, rules: Rules, now: float) -> Trouble | None:
    for save in view.saves:
        if save.state in {"begin", "blocked"} and now - save.began_at >= rules.stall.save_written_s:
            text = f"the save of step {save.step} began {now - save.began_at:.0f} s ago and is not written"
            at = save.began_at + rules.stall.save_written_s
            return Trouble(FaultClass.SAVE_STUCK, Reason.SAVE_STUCK, at, attempt.number, False, text)
    return None


def _not_launched(attempt: Attempt, view: AttemptView, world: int, rules: Rules, now: float) -> Trouble | None:
    if len(view.started) >= world or view.limited or now - attempt.intended_at < rules.node.launch_s:
        return None
    if attempt.accepted_at is not None or view.first_step is not None:
        return None  # it has launched; whose start is not known now was told to an earlier controller
    text = f"{world - len(view.started)} of {world} ranks had not started after {rules.node.launch_s:.0f} s"
    return Trouble(FaultClass.LAUNCH_FAILED, Reason.LAUNCH_FAILED, now, attempt.number, False, text)


def _came_to_nothing(attempt: Attempt, shown: AttemptView, view: View) -> Trouble | None:
    """The cluster has taken the launch and its step is over, and no rank has begun: srun was refused its step.

    Ranks that begin say so at once, and those that end leave a record; the look must be some seconds younger than the launch.
    """
    if attempt.accepted_at is not None or shown.started or shown.exits or shown.done or view.untold:
        return None
    over = attempt.number in view.launched and attempt.number not in view.steps_running and shown.running is False
    if not over or (view.cluster_as_of or 0.0) < attempt.intended_at + BEGUN_S:
        return None
    text = "the step of the launch is over, and no rank has begun"
    at = view.cluster_as_of or 0.0
    return Trouble(FaultClass.LAUNCH_FAILED, Reason.LAUNCH_FAILED, at, attempt.number, True, text)


def _vanished(history: History, attempt: Attempt, shown: AttemptView, view: View) -> Trouble | None:
    """An attempt of an earlier epoch of which neither the cluster nor any agent shows anything, as when its job is over.

    Of ranks that ended there are records, and those that run are told of by agents or shown by the cluster.
    """
    began = history.epoch_began_at
    if attempt.intended_at >= began or view.cluster_as_of is None or view.cluster_as_of <= began:
        return None
    if shown.running is True or attempt.number in view.steps_running or shown.started or shown.exits or shown.done:
        return None
    text = f"nothing of attempt {attempt.number} is left: the cluster shows no step of it, and no agent has heard of its ranks"
    return Trouble(FaultClass.RANK_DIED, Reason.RANK_DIED, began, attempt.number, True, text)


def detect(history: History, view: View, layout: Layout, rules: Rules, now: float) -> Trouble | None:
    """The trouble of the newest attempt; None while it is fine, closed, or can't be seen.

    A lost node explains the deaths of its ranks and of their peers, so it is named before them. Acceptance and probation are
    judged apart, where what they compare with is known.
    """
    attempt, shown = history.attempt, view.attempt
    if attempt is None or attempt.closed_at is not None or view.nodes is UNKNOWN:
        return None
    lost = _lost_nodes(attempt, view.nodes)
    if lost or shown is None or shown.number != attempt.number:
        return lost
    exits = _exits(attempt, shown)
    if exits:
        return exits
    silent = silent_nodes(attempt.slots, view.nodes, rules, now)
    if silent:
        return _silent(attempt, view.nodes, silent)
    if shown.non_finite is not None:
        row = shown.non_finite
        text = f"the loss of step {row.step} is not finite"
        return Trouble(FaultClass.NON_FINITE, Reason.NON_FINITE, row.at, attempt.number, False, text)
    if silent is None:  # most nodes are silent: nothing about progress can be believed
        return None
    if now < history.epoch_began_at + LISTEN_S:
        return None
    return (
        _vanished(history, attempt, shown, view)
        or _came_to_nothing(attempt, shown, view)
        or _save_stuck(attempt, shown, rules, now)
        or _not_launched(attempt, shown, layout.world, rules, now)
        or _stall(attempt, shown, layout, rules, now)
    )
