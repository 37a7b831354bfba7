"""What the console says of one run. Pure: a Reading in, the shapes of `shapes.py` out."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from policies import ledger
from policies.agreement import by_class
from policies.decisions import Recover
from policies.facts import CheckpointPhase, CheckpointState
from policies.history import Incident
from supervisor.console.changes import changes
from supervisor.console.nodes import counts
from supervisor.console.reading import Reading
from supervisor.console.shapes import (
    Break,
    CheckpointsDocument,
    DrillRow,
    DrillsDocument,
    Glance,
    IncidentDocument,
    IncidentRow,
    IncidentsDocument,
    LedgerDocument,
    LineDocument,
    PlanDocument,
    ReadAgain,
    StatusDocument,
    Stretch,
    TextDocument,
)
from supervisor.drill_files import read_all
from supervisor.telling.incident_facts import begin, find_incident, lost_s, plan_of, redo, split, waits
from supervisor.telling.incident_story import incident_story, state_of
from supervisor.telling.plan_page import plan_facts, plan_text
from supervisor.telling.story import run_story, standing, status_text
from supervisor.telling.told import told_lines

DRILLS_MAX = 50


def glance(name: str, reading: Reading) -> Glance:
    """A run in one row."""
    history, status = reading.history, reading.status
    seen = status.view.attempt if status else None
    best = way_back(reading)
    return Glance(
        run=name,
        standing=standing(history, reading.known),
        mode=history.mode,
        paused=history.paused,
        halted=history.halted.reason.value if history.halted else None,
        ended=history.ended,
        controller_alive=reading.alive,
        decision=status.reason if status else "",
        attempt=history.attempt.number if history.attempt else None,
        step=seen.frontier or (history.attempt.start_step if history.attempt else None) if seen else None,
        loss=seen.last_step.loss if seen and seen.last_step else None,
        incidents=len(history.incidents),
        open_incident=history.incident.number if history.incident else None,
        plan=open_digest(reading),
        waits=waits(history, reading.known),
        checkpoint=best.id if best else None,
        written_at=status.at if status else None,
    )


def open_digest(reading: Reading) -> str | None:
    """The digest of the open plan, one that a person can answer."""
    decision = reading.history.decision
    is_open = isinstance(decision, Recover) and decision.incident is not None
    return reading.history.decision_digest if is_open else None


def way_back(reading: Reading) -> CheckpointState | None:
    """The newest completed save."""
    saves = reading.status.view.checkpoints if reading.status else ()
    done = [c for c in saves if c.phase is CheckpointPhase.COMPLETED] if isinstance(saves, tuple) else []
    return max(done, key=lambda c: (c.step, c.completed_at or 0.0), default=None)


def status(name: str, reading: Reading) -> StatusDocument:
    """What the run is doing now."""
    history, seen = reading.history, reading.status
    view = seen.view if seen else None
    attempt = view.attempt if view else None
    up, ready = counts(reading)
    return StatusDocument(
        glance=glance(name, reading),
        now=reading.now,
        epoch=history.epoch,
        started_at=history.started_at,
        attempts=len(history.attempts),
        running=attempt.running if attempt and isinstance(attempt.running, bool) else None,
        phase=attempt.phase.value if attempt else None,
        last_step=attempt.last_step if attempt else None,
        last_advance=attempt.last_advance if attempt else None,
        behind=attempt.behind if attempt else (),
        halt=history.halted,
        held=seen.held if seen else "",
        slots=reading.settings.shape().slots_needed,
        slots_up=up,
        spares_ready=ready,
        quarantined=len(history.barred(reading.now)),
        way_back=way_back(reading),
        text=status_text(history, view, reading.now, reading.known),
        told=tuple(told_lines(history, reading.known)),
        take_over="" if history.ended else reading.known.take_over,
    )


def plan(reading: Reading) -> PlanDocument:
    """The open plan, or that there is none."""
    history, digest = reading.history, open_digest(reading)
    decision = history.decision if isinstance(history.decision, Recover) and digest else None
    earlier = [d for d, one in reading.plans.items() if decision and d != digest and one.incident == decision.incident]
    before = earlier[-1] if earlier else None
    text = plan_text(history, reading.known) if decision else f"{history.run}: no plan is open.\n"
    return PlanDocument(
        open=decision is not None,
        waits=waits(history, reading.known),
        digest=digest,
        since=history.decided_at if decision else None,
        page=plan_facts(history, reading.known) if decision else None,
        decision=decision,
        choice=history.choice,
        before=before,
        changed=changes(reading.plans[before], decision) if before and decision else (),
        text=text,
        controller_alive=reading.alive,
    )


def story(reading: Reading) -> TextDocument:
    """The whole run, as `relight explain` prints it."""
    return TextDocument(run_story(reading.history, reading.known, reading.status.view if reading.status else None))


def incidents(reading: Reading) -> IncidentsDocument:
    """All incidents, one row each."""
    history, known = reading.history, reading.known
    return IncidentsDocument(
        tuple(
            IncidentRow(
                number=one.number,
                attempt=one.attempt,
                at=one.trouble.at,
                fault=one.fault,
                reason=one.reason.value,
                suspects=one.diagnosis.suspects if one.diagnosis else (),
                closed=one.closed,
                state=state_of(history, one, known),
                lost_s=lost_s(one),
                redo_iterations=redo(one)[0],
                follows=one.follows,
            )
            for one in history.incidents
        )
    )


def incident(reading: Reading, number: int) -> IncidentDocument:
    """One incident whole. LookupError (one line for people) when the run has none of that number."""
    history, known = reading.history, reading.known
    found = find_incident(history, number)
    steps, samples = redo(found)
    return IncidentDocument(
        incident=found,
        state=state_of(history, found, known),
        plan=plan_of(history, found),
        lost_s=lost_s(found),
        redo_iterations=steps,
        samples_read_again=samples,
        split_s=dict(split(found.times)),
        cost=_cost(reading, found),
        story=incident_story(history, number, known),
    )


def line(reading: Reading) -> LineDocument:
    """Attempts and incidents on the line of time."""
    history = reading.history
    return LineDocument(
        now=reading.now,
        started_at=history.started_at,
        ended_at=history.attempt.closed_at if history.ended and history.attempt else None,
        attempts=tuple(
            Stretch(
                number=one.number,
                intended_at=one.intended_at,
                accepted_at=one.accepted_at,
                closed_at=one.closed_at,
                checkpoint=one.checkpoint,
                start_step=one.start_step,
                last_step=one.last_step if one.closed_at is not None else None,
                incident=one.incident,
            )
            for one in history.attempts
        ),
        incidents=tuple(
            Break(one.number, one.reason.value, begin(one), one.times.next_good, one.times.caught_up, one.closed)
            for one in history.incidents
        ),
    )


def checkpoints(reading: Reading) -> CheckpointsDocument:
    """Saves in the store, newest first."""
    view = reading.status.view if reading.status else None
    saves = view.checkpoints if view and isinstance(view.checkpoints, tuple) else None
    best = way_back(reading)
    return CheckpointsDocument(
        known=saves is not None,
        as_of=view.store_as_of if view else None,
        saves=tuple(sorted(saves or (), key=lambda c: (c.step, c.attempt), reverse=True)),
        being_written=view.attempt.saves if view and view.attempt else (),
        free_bytes=view.store_free_bytes if view else None,
        way_back=best.id if best else None,
    )


def drills(reading: Reading) -> DrillsDocument:
    """The newest drills, the newest first."""
    rows = [
        DrillRow(
            number=one.number,
            kind=one.kind,
            level=one.level,
            checkpoint=one.checkpoint,
            bytes=one.bytes,
            began_at=one.began_at,
            ended_at=one.ended_at,
            parts=dict(one.parts),
            took_s=one.took_s,
            ok=one.ok,
            why=one.why,
        )
        for one in read_all(reading.run)
    ]
    return DrillsDocument(tuple(reversed(rows[-DRILLS_MAX:])))


def ledgers(reading: Reading) -> LedgerDocument:
    """Both ledgers, with what the attempt that runs has computed so far."""
    history, settings = reading.history, reading.settings
    view = reading.status.view if reading.status else None
    books = ledger.by_now(history.books, history.attempt, view.attempt if view else None)
    samples = _samples(reading)
    per_sample = settings.run.tokens_per_sample
    again = [(one.number, ledger.read_again(one)) for one in history.incidents]
    total: dict[str, float] = {}
    for one in history.incidents:
        for part, seconds in split(one.times):
            total[part] = total.get(part, 0.0) + seconds
    return LedgerDocument(
        computed=books.computed,
        lineage=ledger.lineage(books),
        rolled_back=books.rolled_back,
        skipped=books.skipped,
        adds_up=ledger.lineage(books) >= 0,
        samples=samples,
        tokens=samples * per_sample if samples is not None and per_sample else None,
        samples_read_again=books.samples_read_again,
        read_again=tuple(ReadAgain(number, one.first, one.count) for number, one in again if one),
        split_s=total,
        rank_hours=sum(_cost(reading, one).rank_hours for one in history.incidents),
        effective_share=share(reading),
        agreement=by_class(history.incidents),
    )


def share(reading: Reading) -> float | None:
    """ETTR: the share of the time since the start that was neither down nor redone; to the end, once the run is over."""
    told = ledger.so_far(reading.history, reading.now)
    return told[0] if told is not None else None


def _samples(reading: Reading) -> int | None:
    """Samples that the current weights have seen."""
    attempt, seen = reading.history.attempt, reading.status.view.attempt if reading.status else None
    if seen is not None and attempt is not None and seen.number == attempt.number and seen.last_step is not None:
        return seen.last_step.samples
    last = (attempt.ended or attempt.began) if attempt else None
    return last.samples if last else None


def _cost(reading: Reading, one: Incident) -> ledger.Cost:
    return ledger.cost(one, reading.settings.shape().world, reading.settings.run.tokens_per_sample)


def moment(row: Glance) -> dict[str, Any]:
    """What of a glance is news: without the time of writing, which changes each second."""
    return asdict(replace(row, written_at=None))
