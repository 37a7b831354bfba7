"""What should happen now: an ordered list of rules, each rule(facts) -> Decision | None; the first that answers wins. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from policies import archiving, halting, ladder, leaving, quarantine, readiness, sameslot, skipping, spares
from policies.detect import stall_at
from policies.facts import (
    UNKNOWN,
    AttemptView,
    CheckpointPhase,
    CheckpointState,
    Contain,
    Continue,
    Decision,
    FaultClass,
    Finish,
    Halt,
    History,
    Incident,
    JobPhase,
    NodeState,
    NodeView,
    PlannedStop,
    Recover,
    View,
    Wait,
)
from policies.layout import Layout
from policies.reasons import Reason
from policies.rules import Rules
from policies.unfinished import unfinished

START_GRACE_S = 5.0
"""How long the first start waits for every node, so that slots go by name and not by who is quickest."""
LOOK_AGAIN_S = 5.0
"""How soon a part of the world that could not be read is looked at again."""
FIRST_LOOK_S = 10.0
"""So long after a controller began a part that it has not read yet is only being looked at; then it can't be read."""
ARCHIVE_TOLD_S = 60.0
"""An archive that is needed and can't be read for so long is told: one that is slow for a moment is not worth waking anybody."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a rule may look at."""

    history: History
    view: View
    layout: Layout
    rules: Rules
    now: float

    @property
    def shown(self) -> AttemptView | None:
        """The newest attempt as the world shows it."""
        attempt, shown = self.history.attempt, self.view.attempt
        return shown if attempt and shown and shown.number == attempt.number else None

    @property
    def own_incident(self) -> Incident | None:
        """The open incident, when it is one of the newest attempt: the one that the next attempt is to end."""
        attempt, incident = self.history.attempt, self.history.incident
        return incident if attempt and incident and incident.attempt == attempt.number else None


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
    if done := [c.id for c in _everywhere(s) if c.phase is CheckpointPhase.COMPLETED]:
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


def question(history: History, rules: Rules, now: float) -> spares.Asked | None:
    """What the spares are asked because of the open incident: when it is opened, by each new controller, and when a halt is
    lifted. None while no incident is open.
    """
    incident = history.incident
    if incident is None:
        return None
    since = max(incident.times.confirmed or 0.0, history.listens_since, history.resumed_at or 0.0)
    return spares.Asked(incident.number, since + rules.node.check_s, rules.node.check_s, now)


def _checkpoint_gone(s: Situation, decision: Recover) -> str | None:
    """Why a plan's checkpoint can't be started from any more. What is to come from the archive need not be in the store yet."""
    away = decision.restores is not None
    if away and s.view.archive is UNKNOWN:
        return None
    known = [c for c in _everywhere(s) if c.id == decision.checkpoint and (away or c.location == "store")]
    found = next((c for c in known if c.phase is CheckpointPhase.COMPLETED), None)
    if found is None:
        return f"checkpoint {decision.checkpoint} is no longer completed"
    if found.manifest_hash != decision.manifest_hash:
        return f"checkpoint {decision.checkpoint} has another manifest"
    return None


def start(s: Situation) -> Decision | None:
    """The first attempt, or the next one after a planned stop or a lifted halt, when enough nodes are ready."""
    attempt = s.history.attempt
    if attempt is not None and (attempt.closed_at is None or s.own_incident or _all_clean(s)):
        return None  # its own incident is answered below; one before it is still to be ended by the next attempt
    if s.history.stop_asked is not None and attempt is not None:
        return Wait(Reason.SEALING, s.now + LOOK_AGAIN_S, "the last save is checked")  # then the planned stop is done
    if (stop := halting.barren_jobs(s.history, s.rules.budget)) is not None:
        return _halt(s, s.history.incident, stop.reason, stop.seen, stop.lifts)
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
        return _recover(s, readiness.first(s.layout.slots_needed, nodes, barred), (), None)
    failing = [i for i, name in enumerate(attempt.slots) if name not in ready]
    late = quarantine.on_probation(s.history, s.rules.quarantine, s.now)
    filled = spares.choose(attempt.slots, failing, nodes, barred, late=late)
    if isinstance(filled, spares.Short):
        why = readiness.told(nodes, nodes, barred) or _why_none(nodes, attempt.slots, barred, None).removeprefix(": ")
        return _too_few(s, len(filled.slots_without), why)
    return _recover(s, filled.slots, filled.swaps, s.history.incident)


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
        return _halt(s, incident, Reason.NO_SPARE, seen, lifts)
    if s.history.mode != "auto":
        lifts += f", or the next job: relight stop {s.history.run} --next-job"
        return _halt(s, incident, Reason.NO_SPARE, seen, lifts)
    return PlannedStop(Reason.NO_SPARE, attempt.number, "next-job", text=seen)


def _all_clean(s: Situation) -> bool:
    """Has the training ended? Ranks that were asked to stop end well too: when the run goes on, that is no end."""
    return s.shown is not None and s.shown.number != s.history.reopened and s.shown.ended_well(s.layout.world)


def finish(s: Situation) -> Decision | None:
    """Every rank ended with 0."""
    attempt = s.history.attempt
    if attempt is None or not _all_clean(s) or s.own_incident:
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
    return _halt(s, incident, Reason.REFUSED, "the plan was refused", "relight resume, with another plan if wanted")


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
    return _halt(s, incident, stop.reason, stop.seen, stop.lifts)


def await_seals(s: Situation) -> Decision | None:
    """A save that the framework had finished is worth its checks before an hour is thrown away."""
    attempt, incident = s.history.attempt, s.own_incident
    if attempt is None or incident is None:
        return None
    if attempt.closed_at is not None and (s.view.store_as_of or 0.0) < attempt.closed_at:
        return Wait(Reason.SEALING, s.now + LOOK_AGAIN_S, "the store is read again")
    rung = _climb(s)
    began = incident.times.evidence or incident.times.confirmed or s.now
    if not rung.wait or s.now - began > s.rules.checkpoint.seal_s:
        return None
    return Wait(Reason.SEALING, min(s.now + LOOK_AGAIN_S, began + s.rules.checkpoint.seal_s), "a newer save is checked")


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
    found = _recover(s, filled.slots, filled.swaps, incident, bars=bars, text=text)
    return replace(found, reason=ask[0], asks=True) if ask and isinstance(found, Recover) else found


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


def _everywhere(s: Situation) -> tuple[CheckpointState, ...]:
    """The saves in the store, and the copies in the archive as far as it can be seen."""
    assert s.view.checkpoints is not UNKNOWN  # noqa: S101 - wait_for_sight has answered before
    return s.view.checkpoints + (() if s.view.archive is UNKNOWN else s.view.archive)


def _climb(s: Situation, *, give_up: bool = False) -> ladder.Rung:
    """The ladder; with `give_up`, what could not be judged in time is passed over (and never deleted)."""
    found = _everywhere(s)
    excluded = _off_lineage(s) | _tainted(s)
    if give_up:
        late = [c for c in found if c.phase in ladder.MAY_STILL_COMPLETE]
        excluded |= {c.id: f"could not be judged within {s.rules.checkpoint.seal_s:.0f} s" for c in late}
    return ladder.climb(
        found,
        s.history.choice.checkpoint,
        excluded,
        s.history.completed,
        unfit=s.history.unfit,
        blind=s.view.archive is UNKNOWN,
    )


def _off_lineage(s: Situation) -> dict[str, str]:
    """Saves of steps that a later attempt went back behind: the run goes on from elsewhere, so they are no way back."""
    off = {}
    for one in _everywhere(s):
        behind = [a for a in s.history.attempts if a.number > one.attempt and a.start_step < one.step]
        if behind:
            off[one.id] = f"attempt {behind[0].number} went back to step {behind[0].start_step}"
    return off


def _tainted(s: Situation) -> dict[str, str]:
    """Saves that the attempt made after its loss was no longer finite: what is in them nobody knows. A person may choose one."""
    incident = s.own_incident
    step = incident.diagnosis.step if incident and incident.diagnosis else None
    if incident is None or step is None or incident.fault is not FaultClass.NON_FINITE:
        return {}
    why = f"saved after the loss of step {step} was not finite"
    return {c.id: why for c in _everywhere(s) if c.attempt == incident.attempt and c.step >= step}


def _recover(
    s: Situation,
    slots: tuple[str, ...],
    swaps: tuple[tuple[int, str, str], ...],
    incident: Incident | None,
    *,
    bars: tuple[str, ...] = (),
    text: str = "",
) -> Decision:
    rung = _climb(s, give_up=True)
    best: CheckpointState | None = rung.checkpoint
    if rung.unseen:
        return _wait_for_archive(s)
    if best is None and not rung.from_nothing:
        seen = "; ".join(f"{r.id}: {r.why}" for r in rung.rejected[:3]) or "no completed checkpoint is left"
        return _halt(s, incident, Reason.NO_CHECKPOINT, seen, "a completed checkpoint in the store or the archive")
    restores = best is not None and best.location == "archive"
    if best is not None and restores and (short := archiving.no_room(best, s.view, s.history, s.rules)):
        return Wait(Reason.NO_ROOM, s.now + LOOK_AGAIN_S, short, tells=True)
    attempt = s.history.attempt
    start_step = best.step if best else 0
    return Recover(
        reason=incident.reason if incident else Reason.FIRST_START,
        incident=incident.number if incident else None,
        fault=incident.fault if incident else None,
        died=incident.trouble.died if incident else True,
        stops=attempt.number if attempt and attempt.closed_at is None else None,
        attempt=attempt.number + 1 if attempt else _first_number(s),
        slots=slots,
        bars=bars,
        checkpoint=best.id if best else None,
        checkpoint_step=start_step,
        manifest_hash=best.manifest_hash if best else None,
        rejected=rung.rejected,
        swaps=swaps,
        redo_steps=max(0, incident.frontier - start_step) if incident else 0,
        start=best.counters if best else None,
        text=text,
        skip_samples=skipping.merge(attempt.skip_samples if attempt else (), s.history.choice.skip_samples),
        restores=archiving.restores(best, s.view, s.history) if best is not None and restores else None,
    )


def _first_number(s: Situation) -> int:
    """Of a run whose journal is new: above the saves that it finds, for the id of a save is never used again."""
    return 1 + max((c.attempt for c in _everywhere(s)), default=0)


def _wait_for_archive(s: Situation) -> Wait:
    """The store has nothing to start from and the archive can't be read: nothing is lost, and nothing is thrown away."""
    since = max(s.view.archive_as_of or 0.0, s.history.epoch_began_at)
    why = f" ({s.view.archive_why})" if s.view.archive_why else ""
    text = f"the store has no checkpoint to start from, and the archive can't be read{why}"
    return Wait(Reason.ARCHIVE_BLIND, s.now + LOOK_AGAIN_S, text, tells=s.now - since >= ARCHIVE_TOLD_S)


def _halt(s: Situation, incident: Incident | None, reason: Reason, seen: str, lifts: str) -> Halt:
    attempt = s.history.attempt
    return Halt(reason, seen, lifts, attempt.number if attempt else None, incident.number if incident else None)


def accept(s: Situation) -> Decision | None:
    """The attempt is launched, and has not proved yet that it is really back."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or attempt.accepted_at is not None:
        return None
    until = attempt.intended_at + s.rules.node.launch_s
    shown = s.shown
    launching = shown is None or len(shown.started) < s.layout.world
    stalled = stall_at(s.history, s.view, s.rules)
    until = until if launching else (stalled or until)
    return Wait(Reason.LAUNCHING if launching else Reason.ACCEPTING, max(until, s.now + 0.1))


def room(s: Situation) -> Decision | None:
    """Will the next save find room? Told while there is time; nothing more is deleted for it."""
    attempt, costs, free = s.history.attempt, s.history.save_costs, s.view.store_free_bytes
    if attempt is None or attempt.closed_at is not None or s.history.incident or not costs or free is None:
        return None
    wanted = s.rules.checkpoint.room_factor * costs[-1].bytes
    if free >= wanted:
        return None
    last = f"{costs[-1].id} took {costs[-1].bytes / 1e9:.3g} GB"
    text = f"The store has {free / 1e9:.3g} GB free; {last}, the next save wants {wanted / 1e9:.3g} GB"
    return Continue(Reason.NO_ROOM, stall_at(s.history, s.view, s.rules), text)


def archive_late(s: Situation) -> Decision | None:
    """The daily copy has failed for two days: told, and nothing is stopped for it."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or s.history.incident:
        return None
    text = archiving.late(s.view, s.history, s.rules, s.now)
    return Continue(Reason.ARCHIVE_LATE, stall_at(s.history, s.view, s.rules), text) if text else None


def save_unfinished(s: Situation) -> Decision | None:
    """A save takes far longer than the others did: told, and nothing is stopped for it."""
    attempt = s.history.attempt
    if attempt is None or attempt.closed_at is not None or s.history.incident:
        return None
    text = unfinished(s.view, s.history, s.rules, s.now)
    return Continue(Reason.SAVE_UNFINISHED, stall_at(s.history, s.view, s.rules), text) if text else None


def watch_probation(s: Situation) -> Decision | None:
    """Back, but not yet past the old frontier."""
    last = s.history.incidents[-1] if s.history.incidents else None
    if last is None or not last.closed or last.times.caught_up is not None or last.times.next_good is None:
        return None
    return Continue(Reason.PROBATION, stall_at(s.history, s.view, s.rules))


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
