"""Rollback: from which checkpoint the next attempt starts, the plan of it, or why there is none yet. Pure."""

from __future__ import annotations

from policies import archiving, ladder, skipping
from policies.decisions import Decision, Recover, Wait
from policies.facts import UNKNOWN, CheckpointState, FaultClass
from policies.history import Incident
from policies.reasons import Reason
from policies.situation import LOOK_AGAIN_S, Situation, everywhere, halt

ARCHIVE_TOLD_S = 60.0
"""An archive that is needed and can't be read for so long is told: one that is slow for a moment is not worth waking anybody."""


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


def plan_restart(
    s: Situation,
    slots: tuple[str, ...],
    swaps: tuple[tuple[int, str, str], ...],
    incident: Incident | None,
    *,
    bars: tuple[str, ...] = (),
    text: str = "",
) -> Decision:
    """The next attempt in these slots, from the newest checkpoint that is completed; a wait or a halt where there is none."""
    rung = way_back(s)
    best: CheckpointState | None = rung.checkpoint
    if rung.unseen:
        return _wait_for_archive(s)
    if best is None and not rung.from_nothing:
        seen = "; ".join(f"{r.id}: {r.why}" for r in rung.rejected[:3]) or "no completed checkpoint is left"
        return halt(s, incident, Reason.NO_CHECKPOINT, seen, "a completed checkpoint in the store or the archive")
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


def way_back(s: Situation) -> ladder.Rung:
    """Where a restart would begin now; nothing is waited for any more."""
    return _climb(s, give_up=True)


def _climb(s: Situation, *, give_up: bool = False) -> ladder.Rung:
    """The ladder; with `give_up`, what could not be judged in time is passed over (and never deleted)."""
    found = everywhere(s)
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
    for one in everywhere(s):
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
    return {c.id: why for c in everywhere(s) if c.attempt == incident.attempt and c.step >= step}


def _first_number(s: Situation) -> int:
    """Of a run whose journal is new: above the saves that it finds, for the id of a save is never used again."""
    return 1 + max((c.attempt for c in everywhere(s)), default=0)


def _wait_for_archive(s: Situation) -> Wait:
    """The store has nothing to start from and the archive can't be read: nothing is lost, and nothing is thrown away."""
    since = max(s.view.archive_as_of or 0.0, s.history.epoch_began_at)
    why = f" ({s.view.archive_why})" if s.view.archive_why else ""
    text = f"the store has no checkpoint to start from, and the archive can't be read{why}"
    return Wait(Reason.ARCHIVE_BLIND, s.now + LOOK_AGAIN_S, text, tells=s.now - since >= ARCHIVE_TOLD_S)
