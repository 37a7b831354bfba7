"""What the world shows and the journal does not know yet, as entries. Pure: view and history in, entries out."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from policies import acceptance, probation
from policies.decisions import Recover
from policies.detect import detect
from policies.diagnose import diagnose, look_again
from policies.facts import (
    UNKNOWN,
    AttemptView,
    CheckpointPhase,
    CheckpointState,
    Counters,
    FaultClass,
    JobPhase,
    JobView,
    NodeState,
    SaveCost,
    View,
)
from policies.history import Attempt, History, Incident, Intent, Trouble
from policies.layout import Layout
from policies.quarantine import returning
from policies.reasons import Reason
from policies.retention import by_age
from policies.rules import Rules
from policies.skipping import moved
from supervisor import actions
from supervisor.fold import fold
from supervisor.journal.entries import (
    AttemptAccepted,
    AttemptClosed,
    CaughtUp,
    CheckpointCompleted,
    Diagnosed,
    DrainRefused,
    Ended,
    Entry,
    IncidentClosed,
    IncidentMarked,
    IncidentOpened,
    JobBegan,
    NodeReturned,
    Reopened,
    Settled,
    Stamped,
    StopAsked,
)

TAKEN_AWAY_S = 1.0
"""Slurm shows a job as ending before it signals it; a look that began this much later than a rank's end has seen that."""
WANTED_ENDS = frozenset({"CANCELLED", "DEADLINE", "REVOKED"})
"""Ends of a job, in Slurm's words, that somebody has wanted: they end the run too, also one that is to go on in the next job."""
OWN_ENDS = frozenset({"COMPLETED", "FAILED"})
"""Ends that our own exit code, or a script that failed, has made: no job follows by itself, but one that was asked for does."""
AGENTS_TELL_S = 5.0
"""Agents connect to a new controller every 2 s at the latest; one that has not come after this time is not waited for."""


@dataclass
class Notebook:
    """Collects entries and keeps the history that they make."""

    history: History
    now: float
    entries: list[Entry] = field(default_factory=list)
    intents: Mapping[str, Intent] = field(init=False)
    """Those that were open when this look began."""

    def __post_init__(self) -> None:
        self.intents = self.history.intents

    def note(self, entry: Entry) -> None:
        """Add one entry."""
        self.entries.append(entry)
        self.history = fold(self.history, Stamped(0, self.history.epoch, self.now, entry))


def remember(book: Notebook, view: View, layout: Layout, rules: Rules) -> None:
    """Note everything that policies will ask for, in the order in which it can follow from each other."""
    _job(book, view)
    _completed(book, view)
    _returned(book, view)
    _not_drained(book, view)
    _settled(book, view)
    _trouble(book, view, layout, rules)
    _evidence(book, view, layout)
    _ended_by_itself(book, view)
    _closed(book, view, layout, rules)
    _accepted(book, view, layout)
    _caught_up(book, view, rules)
    _ended(book, view, layout)


def _job(book: Notebook, view: View) -> None:
    """Which job holds the nodes. One that is over while somebody outside of it watches ends the run, or has another follow."""
    job, history = view.job, book.history
    if job is None:
        if history.ended == "next-job" and view.nodes is not UNKNOWN:
            book.note(Reopened("relight"))  # it goes on where there are no jobs
        return
    if job.phase is JobPhase.RUNNING and (
        history.job is None or (history.job.id, history.job.start) != (job.id, job.start)
    ):
        book.note(JobBegan(job.id, job.start))
    if job.phase is JobPhase.ENDED and history.stop_asked is None and not history.ended and not history.halted:
        taken = history.mode == "auto" and job.can_follow and job.word not in WANTED_ENDS | OWN_ENDS
        book.note(StopAsked("slurm", "next-job" if taken else "end", why=f"job {job.id} is {job.word}"))
    if job.phase is JobPhase.ENDED and job.word in WANTED_ENDS and not job.next:
        _cancelled(book, job)


def _cancelled(book: Notebook, job: JobView) -> None:
    """Whoever cancels the job means the run too, also while that is on its way to the next one."""
    history = book.history
    if history.ended == "next-job":
        book.note(Ended("stopped"))
    elif history.stop_asked is not None and history.stop_asked.then != "end" and not history.ended:
        book.note(StopAsked("slurm", "end", why=f"job {job.id} is {job.word}"))


def _is_gone(history: History, attempt: Attempt, view: View) -> bool:
    """Has it ended with its job?"""
    return history.is_of_earlier_job(attempt) or (view.job is not None and view.job.phase is JobPhase.ENDED)


def _shown(history: History, view: View) -> AttemptView | None:
    attempt = history.attempt
    return view.attempt if attempt and view.attempt and view.attempt.number == attempt.number else None


def _completed(book: Notebook, view: View) -> None:
    if view.checkpoints is UNKNOWN:
        return
    known = set(book.history.completed)
    fresh = [c for c in view.checkpoints if c.phase is CheckpointPhase.COMPLETED and c.id not in known]
    for one in sorted(fresh, key=lambda c: (c.completed_at or 0.0, c.step)):
        book.note(CheckpointCompleted(_cost(one, view), one.step))


def _returned(book: Notebook, view: View) -> None:
    if view.nodes is not UNKNOWN:
        for name in returning(book.history, view.nodes, book.now):
            book.note(NodeReturned(name))


def _not_drained(book: Notebook, view: View) -> None:
    """That nodes are barred in this run alone: a new controller must know that it was told."""
    if view.drain_refused and not book.history.drain_refused:
        book.note(DrainRefused(view.drain_refused))


def _cost(one: CheckpointState, view: View) -> SaveCost:
    """What the ranks told of this save, and how long it took until it was sealed."""
    saves = view.attempt.saves if view.attempt and view.attempt.number == one.attempt else ()
    told = next((s for s in saves if s.step == one.step), None)
    if told is None:
        return SaveCost(one.id, one.bytes)
    completed = None if one.completed_at is None else max(0.0, one.completed_at - told.began_at)
    beside = told.step_s_beside if told.steps_beside else None
    return SaveCost(one.id, one.bytes, told.blocked_s, told.written_s, completed, beside, told.host_peak_bytes)


def _settled(book: Notebook, view: View) -> None:
    """An intent is settled by sight, or by an effect that failed outright."""
    failed, incident = dict(view.failures), book.history.incident
    for name, intent in book.history.intents.items():
        action = intent.action
        told = not isinstance(action, actions.Bar | actions.Unbar) or _is_told(name, intent, view, book.history)
        if told and isinstance(action, actions.Action) and actions.is_done(action, view):
            book.note(Settled(name, "seen"))
        elif name in failed and not intent.failed:
            book.note(Settled(name, "failed", failed[name]))
        elif isinstance(action, actions.SLOW) and name not in view.at_work and _is_moot(intent, view, book.history):
            book.note(Settled(name, "moot"))
        elif isinstance(action, actions.Check) and (incident is None or incident.number != action.incident):
            book.note(Settled(name, "moot"))  # of a node that never answered, and need not any more


def _is_told(name: str, intent: Intent, view: View, history: History) -> bool:
    """Is it known that it went well? The world does not show what the cluster made of a bar: whoever has asked must hear it."""
    return name not in view.at_work and name not in dict(view.failures) and intent.epoch == history.epoch


def _is_moot(intent: Intent, view: View, history: History) -> bool:
    """A copy or a reading that nobody is at and nobody will ask for again: left open, it would protect its save for good."""
    action, decision = intent.action, history.decision
    if isinstance(action, actions.Restore):
        return not (isinstance(decision, Recover) and decision.checkpoint == action.checkpoint and decision.restores)
    if view.checkpoints is UNKNOWN or not isinstance(action, actions.Archive):
        return False
    there = [c.id for c in by_age(view.checkpoints)]
    return action.checkpoint not in there or (intent.failed and there[-1] != action.checkpoint)


def _verdict(attempt: Attempt, shown: AttemptView, view: View, layout: Layout) -> acceptance.Verdict:
    from_nothing = attempt.checkpoint is None
    expected = moved(view.expected, attempt.skip_samples) if view.expected else None
    return acceptance.judge(layout, attempt.slots, shown, expected, from_nothing, start_step=attempt.start_step)


def _probation(history: History, shown: AttemptView, rules: Rules) -> tuple[Incident, probation.Outcome] | None:
    """The incident whose old frontier is not passed yet, and how the replay stands."""
    attempt = history.attempt
    last = history.incidents[-1] if history.incidents else None
    if attempt is None or last is None or not last.closed or last.times.next_good is None or last.times.caught_up:
        return None
    if attempt.closed_at is not None or attempt.number <= last.attempt:
        return None
    return last, probation.judge(shown, last.frontier, rules.probation)


def _judged(history: History, view: View, layout: Layout, rules: Rules, now: float) -> Trouble | None:
    """What acceptance or probation have against the newest attempt."""
    attempt, shown = history.attempt, _shown(history, view)
    if attempt is None or shown is None or attempt.closed_at is not None:
        return None
    if attempt.accepted_at is None:
        verdict = _verdict(attempt, shown, view, layout)
        if verdict.state == "failed" and not _may_still_be_told(attempt, history, now):
            text = "; ".join(verdict.faults)
            return Trouble(FaultClass.ACCEPTANCE, Reason.ACCEPTANCE_FAILED, now, attempt.number, True, text)
        return None
    judged = _probation(history, shown, rules)
    if judged and judged[1].state == "failed":
        text = judged[1].text
        return Trouble(FaultClass.PROBATION, Reason.PROBATION_FAILED, now, attempt.number, True, text)
    return None


def _may_still_be_told(attempt: Attempt, history: History, now: float) -> bool:
    """Has this controller taken the attempt over a moment ago? Then its agents tell again what they know, in any order."""
    return attempt.intended_at < history.epoch_began_at and now < history.epoch_began_at + AGENTS_TELL_S


def _trouble(book: Notebook, view: View, layout: Layout, rules: Rules) -> None:
    history, now = book.history, book.now
    attempt, open_one = history.attempt, history.incident
    if attempt is None or attempt.closed_at is not None or history.halted or history.ended:
        return
    if open_one is not None and open_one.attempt == attempt.number:
        return
    if _is_leaving(history, attempt, view):
        return
    trouble = _judged(history, view, layout, rules, now) or detect(history, view, layout, rules, now)
    if trouble is None:
        return
    shown = _shown(history, view)
    last = shown.last_step if shown else None
    carried = open_one or _unfinished_probation(history)
    frontier = max(last.step if last else attempt.start_step, carried.frontier if carried else 0)
    samples = max(
        last.samples if last else (attempt.began.samples if attempt.began else 0),
        carried.frontier_samples if carried else 0,
    )
    number = len(history.incidents) + 1
    last_good = last.at if last else (carried.times.last_good if carried else None)
    detected = min(now, trouble.at)
    follows = carried.number if carried else None
    book.note(
        IncidentOpened(number, attempt.number, trouble, last_good, detected, frontier, samples, follows),
    )


def _is_leaving(history: History, attempt: Attempt, view: View) -> bool:
    """What ends with its job, or on the way out of it, is nobody's fault.

    SIGTERM is what Slurm sends to all of a job that it takes away, and the next look at the cluster shows which.
    """
    job, wish, shown = view.job, history.stop_asked, _shown(history, view)
    if job is None:
        return False
    if job.phase is not JobPhase.RUNNING or history.is_of_earlier_job(attempt):
        return True
    if wish is not None and wish.then != "end" and history.incident is None:
        return True  # with an incident open nothing has been asked of the ranks: what fails then is the next one
    asked = max((e.wall for e in shown.exits if e.signal == signal.SIGTERM), default=0.0) if shown else 0.0
    return asked + TAKEN_AWAY_S >= (view.cluster_as_of or 0.0) and asked > 0.0


def _unfinished_probation(history: History) -> Incident | None:
    """The last incident, when its old frontier was not passed: what fails now follows from it."""
    last = history.incidents[-1] if history.incidents else None
    return last if last is not None and last.times.caught_up is None else None


def _stop_began(book: Notebook, attempt: int) -> float:
    """The look that sees an attempt down has just settled its stop, so the intent is looked for as this look began."""
    intent = book.intents.get(f"stop:{attempt}")
    return intent.at if intent else book.now


def _never_came(history: History, attempt: Attempt, view: View, rules: Rules) -> bool:
    """A launch of which nothing was ever seen. Its fence stands, so what still comes of it is refused."""
    asked = history.intents.get(f"launch:{attempt.number}")
    since = asked.at if asked else attempt.intended_at
    return attempt.number in view.fenced and (view.cluster_as_of or 0.0) - since >= rules.node.gone_s


def _may_still_tell(attempt: Attempt, view: View, history: History, now: float) -> bool:
    """Has a controller that took over an attempt not heard yet what the agents kept? Closed now, it would be lost to the ledger."""
    adopted = attempt.intended_at < history.epoch_began_at
    if view.nodes is UNKNOWN or not adopted or now >= history.epoch_began_at + AGENTS_TELL_S:
        return False
    found = [view.nodes[name] for name in attempt.slots if name in view.nodes]
    return any(node.state is NodeState.UP and not node.agent for node in found)


def _evidence(book: Notebook, view: View, layout: Layout) -> None:
    incident = book.history.incident
    if incident is None or incident.times.evidence is not None:
        return
    capture = view.capture
    if capture is None or capture.incident != incident.number or not capture.done:
        return
    kept = f"{capture.kept} ranks" + (f", {capture.unknown} unknown" if capture.unknown else "")
    book.note(IncidentMarked(incident.number, "evidence", kept))
    book.note(Diagnosed(incident.number, diagnose(book.history, incident, view, layout, book.now + 1.0)))


def _ended_by_itself(book: Notebook, view: View) -> None:
    """A stall in which nothing had died, and which moved on before anything of it was stopped: the incident is over."""
    history = book.history
    incident, shown = history.incident, _shown(history, view)
    if incident is None or shown is None or incident.attempt != shown.number or incident.times.confirmed is None:
        return
    untouched = shown.number not in view.fenced and f"fence:{shown.number}" not in history.intents
    if incident.trouble.fault not in {FaultClass.STALL, FaultClass.NODE_SILENT} or not untouched:
        return
    if shown.frontier > incident.frontier and (shown.last_advance or 0.0) > incident.times.confirmed:
        book.note(IncidentClosed(incident.number, shown.frontier))


def _closed(book: Notebook, view: View, layout: Layout, rules: Rules) -> None:
    history = book.history
    attempt, shown = history.attempt, _shown(history, view)
    if attempt is None or attempt.closed_at is not None or view.nodes is UNKNOWN:
        return
    if attempt.number in view.steps_running:
        return
    if _is_gone(history, attempt, view):
        book.note(AttemptClosed(attempt.number, _counters(attempt, shown)))
        return
    if attempt.number not in view.launched and not _never_came(history, attempt, view, rules):
        return
    all_clean = shown is not None and shown.ended_well(layout.world)
    if attempt.number not in view.fenced and not all_clean:
        return
    if _may_still_tell(attempt, view, history, book.now):
        return
    incident = history.incident
    if incident is not None and incident.attempt == attempt.number:
        # everything is in now: the earliest error is looked for once more, and only earlier evidence changes it
        stopped_from = _stop_began(book, attempt.number)
        again = look_again(incident.diagnosis, history, incident, view, layout, stopped_from)
        if again.first and again != incident.diagnosis:
            book.note(Diagnosed(incident.number, again))
    book.note(AttemptClosed(attempt.number, _counters(attempt, shown)))


def _counters(attempt: Attempt, shown: AttemptView | None) -> Counters:
    """Where it ended, as far as was told."""
    last = shown.last_step if shown else None
    began = attempt.began or Counters(attempt.start_step, 0, attempt.start_step, 0, None)
    return Counters(last.step, last.samples, last.updates, last.skipped, last.lr) if last else began


def _accepted(book: Notebook, view: View, layout: Layout) -> None:
    history = book.history
    attempt, shown = history.attempt, _shown(history, view)
    if attempt is None or shown is None or attempt.accepted_at is not None or attempt.closed_at is not None:
        return
    incident = history.incident
    ours = incident is not None and incident.attempt < attempt.number
    if incident is not None and not ours:
        return
    if incident is not None and incident.times.loaded is None and len(shown.loaded) == layout.world:
        book.note(IncidentMarked(incident.number, "loaded"))
    verdict = _verdict(attempt, shown, view, layout)
    if verdict.state != "passed":
        return
    text = "limited: only log lines and exits are known" if verdict.limited else "all ranks as in the manifest"
    # The acceptance last: a write that is torn between the two must not leave an incident that nothing closes.
    if incident is not None:
        book.note(IncidentClosed(incident.number, shown.frontier))
    book.note(AttemptAccepted(attempt.number, verdict.limited, text))


def _caught_up(book: Notebook, view: View, rules: Rules) -> None:
    shown, attempt = _shown(book.history, view), book.history.attempt
    if shown is None or attempt is None or book.history.incident is not None:
        return
    judged = _probation(book.history, shown, rules)
    if judged is not None and judged[1].state == "passed":
        book.note(CaughtUp(judged[0].number, attempt.number, shown.replay))


def _ended(book: Notebook, view: View, layout: Layout) -> None:
    """The end is the last update, sealed; so is a planned stop, after which the run goes on here, in the next job, or later."""
    history = book.history
    attempt, shown, wish = history.attempt, _shown(history, view), history.stop_asked
    if history.ended or history.halted:
        return
    left = attempt is not None and (history.incident is not None or attempt.number == history.reopened)
    nothing_runs = attempt is None or (attempt.closed_at is not None and left)
    if wish is not None and nothing_runs:
        if wish.then != "here":  # there is nothing that could save; an incident goes on with its own answer
            book.note(Ended("stopped" if wish.then == "end" else "next-job"))
        return
    if attempt is None or attempt.closed_at is None or view.checkpoints is UNKNOWN:
        return
    incident = history.incident
    if incident is not None and incident.attempt == attempt.number:
        return
    if attempt.number == history.reopened:
        return  # it was stopped as planned, and the run goes on
    clean = shown is not None and shown.ended_well(layout.world)
    if not (clean or wish is not None) or (view.store_as_of or 0.0) < attempt.closed_at:
        return
    unsealed = any(c.attempt == attempt.number and c.phase is CheckpointPhase.FRAMEWORK_DONE for c in view.checkpoints)
    if unsealed and history.mode != "observe":  # there nobody seals
        return
    if incident is not None and shown is not None:
        book.note(IncidentClosed(incident.number, shown.frontier))
    if wish is None or wish.then == "end":
        book.note(Ended("stopped" if wish else "finished"))
    else:
        book.note(Ended("next-job") if wish.then == "next-job" else Reopened(wish.who))
