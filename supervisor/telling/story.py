"""The run as people read it: its story, its status, and the same for programs. Pure; the time is an argument."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from policies import agreement, ledger
from policies.decisions import Halt, PlannedStop, Recover, Wait
from policies.facts import INFRASTRUCTURE, CheckpointPhase, NodeState, Unknown
from supervisor.telling.copies import copies_lines
from supervisor.telling.incident_facts import Known, find_incident, lost_s, plan_of, redo, split, waits
from supervisor.telling.incident_story import checkpoint_text, incident_story, state_of
from supervisor.telling.job_lines import job_lines
from supervisor.telling.say import SEEN_MAX, clean, clock, count, minutes, names, number, plan_id, sentence, span, stamp
from supervisor.telling.spares_line import hot, spares_lines
from supervisor.telling.told import told_lines

if TYPE_CHECKING:
    from policies.agreement import Agreement
    from policies.facts import AttemptView, View
    from policies.history import Books, History, Incident

__all__ = ["Known", "incident_story", "run_story", "status_text", "to_json"]


def run_story(history: History, known: Known | None = None, view: View | None = None) -> str:
    """The whole run: attempts, incidents one line each, both ledgers, where the time went. `view`: what was seen last, for what
    the attempt that runs has done; the journal holds that of those that are over.
    """
    known = known or Known()
    lines = [f"{clean(history.run, 64) or 'The run'}: {standing(history, known)}"]
    if history.started_at is not None:
        lines.append(f"Started {stamp(history.started_at, known.zone)}. {count(len(history.attempts), 'attempt')}.")
    for attempt in history.attempts:
        origin = f"from {clean(attempt.checkpoint, 64)}" if attempt.checkpoint else "from nothing"
        asked = stamp(attempt.intended_at, known.zone)
        end = f", closed {stamp(attempt.closed_at, known.zone)} at iteration {number(attempt.last_step)}"
        ended = end if attempt.closed_at is not None else ", open"
        accepted = "" if attempt.accepted_at is not None else ", not accepted"
        limited = " (limited)" if attempt.limited and not accepted else ""
        lines.append(f"Attempt {attempt.number}: {asked}, {origin}{ended}{accepted}{limited}.")
    lines += [incident_line(history, incident, known) for incident in history.incidents] or ["No incidents."]
    lines += _ledgers(history, view)
    total: dict[str, float] = {}
    for incident in history.incidents:
        for name, seconds in split(incident.times):
            total[name] = total.get(name, 0.0) + seconds
    if total:
        parts = ", ".join(f"{name} {minutes(seconds)}" for name, seconds in total.items())
        lines.append(f"Where the time of all incidents went: {parts}.")
    lines += [agreement_line(one) for one in agreement.by_class(history.incidents)]
    if known.now is not None and (told := ledger.so_far(history, known.now)) is not None:
        share, stood = told
        between = f" Between attempts, without a fault: {span(stood)}; that counts as down." if stood else ""
        lines.append(f"Neither down nor redone: {share:.1%} of the time since the start.{between}")
    return "\n".join(lines) + "\n"


def agreement_line(one: Agreement) -> str:
    """How often people agreed with the plans of one fault class, and whether that earns automation."""
    judged = one.agreed + one.changed + one.wrong
    other = [f"{number(n)} {word}" for n, word in ((one.changed, "changed first"), (one.wrong, "refused")) if n]
    earned = "earned" if one.earned else "not earned yet"
    more = f" ({', '.join(other)})" if other else ""
    return f"Plans for {one.fault}: {number(one.agreed)} of {number(judged)} approved as they were{more}; automation {earned}."


def standing(history: History, known: Known | None = None) -> str:
    """What the run is doing, in a few words; the first words of every text about it.

    Where nobody watches, that is said before all that was so when somebody still did; `halted` and the end stay as they are.
    """
    seen, nobody = _standing(history), unwatched(history, known or Known())
    if not nobody:
        return seen
    return f"{seen} {nobody[0].upper()}{nobody[1:]}" if history.halted else f"{nobody} Before: {seen}"


def unwatched(history: History, known: Known) -> str:
    """That no controller is alive, and since when; empty where one is, or none is needed any more."""
    if not known.unwatched or history.ended:
        return ""
    since = known.unwatched_since
    if since is None:
        if not history.epoch:  # none has got so far yet, and one may just be starting
            return ""
        return "no controller is alive."
    return f"no controller is alive since {clock(since, known.zone, known.now)}; this is what the last one wrote."


def _standing(history: History) -> str:
    halt, incident = history.halted, history.incident
    if halt:
        return f"halted ({halt.reason}), not restarting. {sentence(halt.seen, SEEN_MAX)}".rstrip()
    if history.ended:
        return (
            "has left its job, and goes on in the next one." if history.ended == "next-job" else sentence(history.ended)
        )
    if history.paused:
        return "paused: it watches and seals, and does nothing else."
    if incident:
        return f"incident {incident.number} is open ({incident.reason})."
    if history.attempt is None:
        return "not started yet."
    return "no incident is open."


def incident_line(history: History, incident: Incident, known: Known) -> str:
    """One incident in one line."""
    blamed = names(incident.diagnosis.suspects) if incident.diagnosis and incident.diagnosis.suspects else "nobody"
    kind = "infrastructure" if incident.fault in INFRASTRUCTURE else "software"
    steps, _ = redo(incident)
    again = f" {count(steps, 'iteration')} to redo." if steps is not None else ""
    text = f"Incident {incident.number}: {stamp(incident.trouble.at, known.zone)}, {incident.reason} ({kind})"
    return f"{text}, suspect: {blamed}.{again} {state_of(history, incident, known)}"


def _ledgers(history: History, view: View | None) -> list[str]:
    attempt, seen = history.attempt, view.attempt if view else None
    lines = ledger_lines(_books_by_now(history, view))
    if attempt is None or attempt.closed_at is not None or (seen is not None and seen.number == attempt.number):
        return lines
    return [
        *lines,
        f"Those of attempt {attempt.number} are not among them: it is open, and what it has done is not at hand.",
    ]


def ledger_lines(books: Books) -> list[str]:
    """Both ledgers. When they do not add up, that is said first: nothing else in them can then be trusted."""
    lineage = ledger.lineage(books)
    parts = f"{number(lineage)} in the current lineage + {number(books.rolled_back)} rolled back"
    lines = [
        f"Updates: {number(books.computed)} computed = {parts}; {number(books.skipped)} skipped.",
        f"Samples read again: {number(books.samples_read_again)}.",
    ]
    if lineage < 0:
        lines.insert(0, "The ledgers do not add up: more was rolled back than computed.")
    return lines


def _how_on(history: History, known: Known) -> str:
    """A halted run is not taken over as it stands: whoever takes it over finds it halted."""
    if history.halted is None:
        return f"Take over: {known.take_over}"
    job = "; where its job is over, submit the job script again" if history.job is not None else ""
    return f'To go on: relight resume {clean(history.run, 64)} --because "...", then {known.take_over}{job}'


def status_text(history: History, view: View | None, now: float, known: Known | None = None) -> str:
    """About ten lines: what it does, where training is, the nodes, the way back, what it waits for."""
    known = known or Known()
    mode = f"{history.mode} (paused)" if history.paused else history.mode
    run, nobody = clean(history.run, 64), unwatched(history, known)
    lines = [f"{run}: {nobody}", _how_on(history, known)] if nobody else []
    lines += [f"{run}: {_standing(history)}"]
    if known.unwatched and not nobody and not history.ended:
        lines.append(
            "Nothing is in its journal yet: its controller is starting, or has ended early. Its own output says."
        )
    lines.append(f"Mode {mode}, epoch {history.epoch}.")
    lines += job_lines(history, view, now, known)
    lines += _attempt_lines(history, view.attempt if view else None, now, known)
    if view is None:
        lines.append("Nodes and checkpoints: not seen; no view at hand.")
    else:
        lines += [
            _nodes(history, view, now),
            *spares_lines(history, view, now),
            *_saves(view, now, known),
            *copies_lines(history, view, now, known),
        ]
    if history.drain_refused and (only := history.barred(now)):
        said = sentence(history.drain_refused, SEEN_MAX)
        lines.append(
            f"Not drained, barred in this run alone: {names(sorted(only))}. {said} See: relight runbook drain-refused"
        )
    if history.incidents:
        last = history.incidents[-1]
        lines.append(f"Incident {last.number} ({last.reason}): {state_of(history, last, known)}")
    lines += [*_next(history, now, known), *told_lines(history, known)]
    lines.append(ledger_lines(_books_by_now(history, view))[0])
    return "\n".join(lines) + "\n"


def _books_by_now(history: History, view: View | None) -> Books:
    return ledger.by_now(history.books, history.attempt, view.attempt if view else None)


def _attempt_lines(history: History, seen: AttemptView | None, now: float, known: Known) -> list[str]:
    attempt = history.attempt
    if attempt is None:
        return ["No attempt yet."]
    origin = checkpoint_text(attempt.checkpoint, attempt.start_step, known, now) if attempt.checkpoint else "nothing"
    state = (
        "closed"
        if attempt.closed_at is not None
        else "accepted"
        if attempt.accepted_at is not None
        else "not accepted yet"
    )
    ended = next((i for i in history.incidents if i.number == attempt.incident and i.closed), None)
    if state == "accepted" and ended and ended.times.caught_up is None:
        state = "accepted, on probation"
    lines = [f"Attempt {attempt.number} since {stamp(attempt.intended_at, known.zone)}, from {origin}: {state}."]
    if seen is None or seen.number != attempt.number:
        return [*lines, "Its ranks: not seen."]
    running = "unknown whether running" if isinstance(seen.running, Unknown) else "running" if seen.running else "down"
    moved = f", last advance {span(now - seen.last_advance)} ago" if seen.last_advance is not None else ""
    loss = ""
    if seen.last_step:
        lr = seen.last_step.lr
        loss = f", loss {seen.last_step.loss:.6g}" if seen.last_step.loss is not None else ", loss unknown"
        loss += f", learning rate {lr:.4g}" if lr is not None else ""
    behind = f" Behind: ranks {names([str(r) for r in seen.behind], 8)}." if seen.behind else ""
    lines.append(f"Iteration {number(seen.frontier)}, {running}, phase {seen.phase}{moved}{loss}.{behind}")
    return lines


def _nodes(history: History, view: View, now: float) -> str:
    if isinstance(view.nodes, Unknown):
        blind = f" for {span(now - view.cluster_as_of)}" if view.cluster_as_of is not None else ""
        return f"Nodes: unknown; the cluster cannot be read{blind}. Nothing is done on that account."
    slots = history.attempt.slots if history.attempt else ()
    barred = history.barred(now)
    up = sum(1 for n in slots if n in view.nodes and view.nodes[n].state is NodeState.UP)
    ready = hot(history, view, now)
    bad = [f"{n} ({view.nodes[n].state})" if n in view.nodes else f"{n} (unknown)" for n in slots]
    bad = [
        text
        for n, text in zip(slots, bad, strict=True)
        if n not in view.nodes or view.nodes[n].state is not NodeState.UP
    ]
    short = f" Not up: {names(bad)}." if bad else ""
    age = f" Seen {span(now - view.cluster_as_of)} ago." if view.cluster_as_of is not None else ""
    return (
        f"Nodes: {number(up)} of {number(len(slots))} slots up; {count(ready, 'hot spare')} ready;"
        f" barred: {names(sorted(barred))}.{short}{age}"
    )


def _saves(view: View, now: float, known: Known) -> list[str]:
    if isinstance(view.checkpoints, Unknown):
        return [
            "Checkpoints: unknown; the store cannot be read. Nothing is deleted and nothing falls back on that account."
        ]
    done = [c for c in view.checkpoints if c.phase is CheckpointPhase.COMPLETED]
    beside = Known(zone=known.zone, checkpoints=view.checkpoints)
    best = max(done, key=lambda c: (c.step, c.completed_at or 0.0), default=None)
    text = f"Way back: {checkpoint_text(best.id, best.step, beside, now)}." if best else "Way back: none completed yet."
    unsettled = (CheckpointPhase.IN_PROGRESS, CheckpointPhase.FRAMEWORK_DONE, CheckpointPhase.NOT_YET)
    waiting = [f"iteration {number(c.step)} ({c.phase})" for c in view.checkpoints if c.phase in unsettled]
    age = f" Store seen {span(now - view.store_as_of)} ago." if view.store_as_of is not None else ""
    return [f"{text} {count(len(done), 'completed save')}; not completed: {names(waiting)}.{age}"]


_DOING: Final = {
    "contain": "the evidence is kept, then the attempt is stopped",
    "planned-stop": "the ranks are asked to save and stop",
    "finish": "what is left is sealed, then the nodes are let go",
    "continue": "nothing is to be done",
}


def _next(history: History, now: float, known: Known) -> list[str]:
    """What it waits for or is about to do, and the command where a person is wanted."""
    run, decision = clean(history.run, 64), history.decision
    if history.halted:
        reason = history.halted.reason
        return [f"A person is wanted. Lifted by: {sentence(history.halted.lifts)} See: relight runbook {reason}"]
    if isinstance(decision, Recover):
        digest = history.decision_digest
        if digest is None:
            return [f"Next: restart ({decision.reason})."]
        do = f" Waiting for you: relight approve {run} --plan {plan_id(digest)}" if waits(history, known) else ""
        return [f"Plan {plan_id(digest)} since {stamp(history.decided_at, known.zone)} ({decision.reason}).{do}"]
    if isinstance(decision, Wait):
        why = f" {sentence(decision.text)}" if decision.text else ""
        return [f"Waiting until {clock(decision.until, known.zone, now)} at the latest ({decision.reason}).{why}"]
    if isinstance(decision, Halt):
        return [f"About to halt ({decision.reason}): {sentence(decision.seen)}"]
    if decision is None or history.ended:  # then it has been done
        return []
    late = isinstance(decision, PlannedStop) and decision.down
    doing = "what has not stopped by itself is stopped" if late else _DOING[decision.kind]
    return [f"Now: {doing} ({decision.reason})."]


def to_json(
    history: History, wanted: int | None = None, known: Known | None = None, view: View | None = None
) -> dict[str, Any]:
    """The same for programs, of one incident or of all; `view` as in `run_story`. `schema` rises when a field changes its meaning.

    Times are wall seconds. Text is as it was seen, not cleaned: JSON escapes it, and who prints it cleans it.
    LookupError when the run has no such incident.
    """
    known = known or Known()
    chosen = history.incidents if wanted is None else (find_incident(history, wanted),)
    books = _books_by_now(history, view)
    return {
        "schema": 1,
        "run": history.run,
        "mode": history.mode,
        "paused": history.paused,
        "epoch": history.epoch,
        "started_at": history.started_at,
        "standing": standing(history, known),
        "ended": history.ended,
        "halted": asdict(history.halted) if history.halted else None,
        "plan": {"digest": history.decision_digest, "at": history.decided_at, **_decision(history)},
        "attempts": [{**asdict(a), "slots": list(a.slots)} for a in history.attempts],
        "incidents": [_incident_json(history, i, known) for i in chosen],
        "bars": [asdict(b) for b in history.bars],
        "drain_refused": history.drain_refused,
        "agreement": [
            {**asdict(a), "share": a.share, "earned": a.earned} for a in agreement.by_class(history.incidents)
        ],
        "ledgers": {**asdict(books), "lineage": ledger.lineage(books)},
    }


def _decision(history: History) -> dict[str, Any]:
    decision = history.decision
    return {"kind": decision.kind, "reason": decision.reason} if decision else {"kind": None}


def _incident_json(history: History, incident: Incident, known: Known) -> dict[str, Any]:
    steps, samples = redo(incident)
    return {
        **asdict(incident),
        "state": state_of(history, incident, known),
        "plan": plan_of(history, incident),
        "lost_s": lost_s(incident),
        "redo_iterations": steps,
        "samples_read_again": samples,
        "split_s": dict(split(incident.times)),
        "story": incident_story(history, incident.number, known),
    }
