"""The rules that start attempts: the first one, the next after a planned stop, and the next after an incident. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from policies import halting, quarantine, readiness, sameslot, spares
from policies.decisions import Decision, PlannedStop, Recover, Wait
from policies.facts import UNKNOWN, FaultClass, NodeState, NodeView
from policies.history import Incident
from policies.reasons import Reason
from policies.rollback import plan_restart
from policies.situation import LOOK_AGAIN_S, Situation, all_clean, halt, question

START_GRACE_S = 5.0
"""How long the first start waits for every node, so that slots go by name and not by who is quickest."""


def start(s: Situation) -> Decision | None:
    """The first attempt, or the next one after a planned stop or a lifted halt, when enough nodes are ready."""
    attempt = s.history.attempt
    if attempt is not None and (attempt.closed_at is None or s.own_incident or all_clean(s)):
        return None  # its own incident is answered below; one before it is still to be ended by the next attempt
    if s.history.stop_asked is not None and attempt is not None:
        return Wait(Reason.SEALING, s.now + LOOK_AGAIN_S, "the last save is checked")  # then the planned stop is done
    if (stop := halting.barren_jobs(s.history, s.rules.budget)) is not None:
        return halt(s, s.history.incident, stop.reason, stop.seen, stop.lifts)
    nodes, barred = s.view.nodes, s.history.barred(s.now)
    assert nodes is not UNKNOWN  # noqa: S101 - wait_for_sight has answered before
    if (wait := _wait_until_heard_of(s, nodes, barred)) is not None:
        return wait
    ready = readiness.ready(nodes, barred)
    up = sum(1 for n in nodes.values() if n.state is NodeState.UP)
    settled = s.history.listens_since + START_GRACE_S
    if len(ready) < up and s.now < settled:
        return Wait(Reason.FIRST_START, settled, f"{up - len(ready)} nodes are not ready yet")
    if attempt is None:
        if (missing := s.layout.slots_needed - len(ready)) > 0:
            return _too_few(s, missing, readiness.told(nodes, nodes, barred))
        return plan_restart(s, readiness.first(s.layout.slots_needed, nodes, barred), (), None)
    failing = [i for i, name in enumerate(attempt.slots) if name not in ready]
    late = quarantine.on_probation(s.history, s.rules.quarantine, s.now)
    filled = spares.choose(attempt.slots, failing, nodes, barred, late=late)
    if isinstance(filled, spares.Short):
        why = readiness.told(nodes, nodes, barred) or _why_none(nodes, attempt.slots, barred, None).removeprefix(": ")
        return _too_few(s, len(filled.slots_without), why)
    return plan_restart(s, filled.slots, filled.swaps, s.history.incident)


def recover(s: Situation) -> Decision | None:
    """The same shape again, from the newest completed checkpoint, or a halt that says what is missing."""
    attempt, incident = s.history.attempt, s.own_incident
    if attempt is None or incident is None:
        return None
    assert s.view.nodes is not UNKNOWN  # noqa: S101 - wait_for_sight has answered before
    choice = s.history.choice
    trouble = replace(incident.trouble, fault=incident.fault)
    if incident.diagnosis and incident.diagnosis.suspects:
        trouble = replace(trouble, nodes=incident.diagnosis.suspects)
    stays = sameslot.staying(s.history, halting.counting(s.history), s.rules.quarantine)
    keep = (*choice.keep_nodes, *_brought_back(s, incident), *stays)
    verdict = quarantine.to_bar(incident.diagnosis, trouble, s.rules, s.history, s.now, keep)
    ask, bars = _ask_first(s, verdict, stays), verdict.nodes
    barred = s.history.barred(s.now) | set(bars)
    if (wait := _wait_until_heard_of(s, s.view.nodes, barred)) is not None:
        return wait
    failing = [
        slot
        for slot, name in enumerate(attempt.slots)
        if name in barred or name not in s.view.nodes or s.view.nodes[name].state is not NodeState.UP
    ]
    late = quarantine.on_probation(s.history, s.rules.quarantine, s.now)
    asked = question(s.history, s.rules, s.now)
    filled = spares.choose(attempt.slots, failing, s.view.nodes, barred, choice.spares, late, asked)
    if unheard := [n for n in choice.spares if n in s.view.nodes and not s.view.nodes[n].agent]:
        coming = _may_still_answer(s, incident, attempt.slots, barred | (s.view.nodes.keys() - unheard))
        if coming is not None:
            return Wait(Reason.NO_SPARE, coming, f"{', '.join(unheard)}, chosen by a person, waits for its agent")
    if isinstance(filled, spares.Short):
        without = ", ".join(str(n) for n in filled.slots_without)
        coming = _may_still_answer(s, incident, attempt.slots, barred)
        if coming is not None:
            return Wait(
                Reason.NO_SPARE, coming, f"slot {without} waits for a spare whose agent is started or checks its node"
            )
        seen = f"no healthy spare for slot {without}{_why_none(s.view.nodes, attempt.slots, barred, asked)}"
        kept = _how_to_keep(s, bars)
        return _without_node(s, incident, seen, f"another node, or a node brought back{kept}")
    text = ask[1] if ask else verdict.why
    again = [n for n in bars if quarantine.for_good(n, incident.number, s.history, s.rules.quarantine)]
    if again:
        text += f"; for good: {', '.join(again)}, barred before"
    found = plan_restart(s, filled.slots, filled.swaps, incident, bars=bars, text=text)
    return replace(found, reason=ask[0], asks=True) if ask and isinstance(found, Recover) else found


def _too_few(s: Situation, missing: int, why: str) -> Decision:
    """Nodes come up one after the other, so they are waited for; then a person is told, for nobody else can help."""
    attempt = s.history.attempt
    since = max(s.history.listens_since, s.history.resumed_at or 0.0, attempt.closed_at or 0.0 if attempt else 0.0)
    until = since + s.rules.node.launch_s
    seen = f"{missing} slot{'' if missing == 1 else 's'} without a ready node" + (f": {why}" if why else "")
    if s.now < until:
        return Wait(Reason.FIRST_START, min(until, s.now + LOOK_AGAIN_S), seen)
    return _without_node(s, s.history.incident, seen, "another node, or a node brought back")


def _how_to_keep(s: Situation, bars: Sequence[str]) -> str:
    """Said of a node that this incident would bar. One that is down has left its job for good, and can't be kept."""
    nodes = {} if s.view.nodes is UNKNOWN else s.view.nodes
    down = {name for name in bars if name not in nodes or nodes[name].state is NodeState.DOWN}
    if not bars or (bars[0] in down and s.view.job is not None):
        return ""
    return f', or the node kept: relight resume {s.history.run} --keep-node {bars[0]} --because "..."'


def _without_node(s: Situation, incident: Incident | None, seen: str, lifts: str) -> Decision:
    """A job gets no new nodes, so the run goes on in the next one; not twice in a row without an attempt between."""
    attempt, job, held = s.history.attempt, s.view.job, s.history.job
    tried = attempt is not None and held is not None and attempt.intended_at >= held.at
    if job is None or not job.can_follow or not tried or attempt is None:
        return halt(s, incident, Reason.NO_SPARE, seen, lifts)
    if s.history.mode != "auto":
        lifts += f", or the next job: relight stop {s.history.run} --next-job"
        return halt(s, incident, Reason.NO_SPARE, seen, lifts)
    return PlannedStop(Reason.NO_SPARE, attempt.number, "next-job", text=seen)


def _wait_until_heard_of(s: Situation, nodes: Mapping[str, NodeView], barred: Collection[str]) -> Wait | None:
    """A cluster that has just started has not heard of its nodes yet: neither healthy nor lost, for so long at most."""
    unheard = {n.name: n.since for n in nodes.values() if n.state is NodeState.UNKNOWN and n.name not in barred}
    until = max(unheard.values(), default=0.0) + s.rules.node.gone_s
    if not unheard or s.now >= until:
        return None
    seen = f"the cluster has not heard of {readiness.few(sorted(unheard))} yet"
    return Wait(Reason.BLIND, min(until, s.now + LOOK_AGAIN_S), seen)


def _may_still_answer(
    s: Situation, incident: Incident, slots: tuple[str, ...], barred: Collection[str]
) -> float | None:
    """Until when a spare that is up may still get its agent, or be checked; None when there is none, or it had its time.

    The agents find a new controller within seconds, one that has ended is started again, and it looks at its node within
    seconds: no reason to halt.
    """
    times = incident.times
    since = max(times.stopped or 0.0, times.confirmed or 0.0, s.history.listens_since)
    assert s.view.nodes is not UNKNOWN  # noqa: S101 - wait_for_sight has answered before
    nodes = s.view.nodes.values()
    waiting = [n for n in nodes if not n.agent and n.name not in slots and n.name not in barred]
    up = any(n.state is NodeState.UP and not n.drained_by_other for n in waiting)
    asked = question(s.history, s.rules, s.now)
    checking = [n for n in nodes if asked and spares.why_not(n, slots, barred) == spares.NOT_CHECKED]
    until = max((asked.until_of(n) for n in checking if asked), default=0.0)
    until = max(until, since + s.rules.node.gone_s if up else 0.0)
    return min(until, s.now + LOOK_AGAIN_S) if s.now < until else None


def _why_none(
    nodes: Mapping[str, NodeView], slots: tuple[str, ...], barred: Collection[str], asked: spares.Asked | None
) -> str:
    """Why each of the spares that there are is none, for a person; empty where there are none."""
    free = {n.name: spares.why_not(n, slots, barred, asked) for n in nodes.values() if n.name not in slots}
    said = [f"{name} {why}" for name, why in sorted(free.items()) if why and name not in barred]
    return f": {readiness.few(said)}" if said else ""


def _ask_first(
    s: Situation, verdict: quarantine.ToBar | quarantine.Breaker, stays: Mapping[str, str]
) -> tuple[Reason, str] | None:
    """Why a person is asked even where automation would act: the page, and what was seen."""
    if isinstance(verdict, quarantine.Breaker):
        return Reason.BREAKER, verdict.why
    if stays:
        return Reason.NOT_THE_NODE, "; ".join(stays.values())
    nobody = quarantine.no_suspect(halting.counting(s.history), s.rules, s.now) if not verdict.nodes else None
    return (Reason.NO_SUSPECT, nobody) if nobody else None


def _brought_back(s: Situation, incident: Incident) -> tuple[str, ...]:
    """Nodes that answer again when a person has lifted the halt: what they were lost for is over."""
    lifted = s.history.resumed_at
    if lifted is None or lifted < incident.trouble.at or s.view.nodes is UNKNOWN:
        return ()
    if incident.fault not in {FaultClass.NODE_LOST, FaultClass.NODE_SILENT}:
        return ()
    return tuple(n.name for n in s.view.nodes.values() if n.state is NodeState.UP and n.agent)
