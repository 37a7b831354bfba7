"""tick(history, view, ...): look, remember, decide, and take one step of the plan. Pure: the time is an argument.

The shell (`loop.py`) writes the entries to the journal first, and only then performs the actions.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.decide import decide
from policies.decisions import Contain, Continue, Decision, Finish, Halt, PlannedStop, Recover, Wait
from policies.detect import stall_at
from policies.facts import UNKNOWN, NodeState, View
from policies.history import History
from policies.layout import Layout
from policies.rules import Rules
from policies.situation import Situation, question
from policies.sticky import contradiction
from supervisor import actions
from supervisor.actions import RETRY_MAX, RETRY_MAX_S, RETRY_S, Action
from supervisor.gate import Held, digest, gate
from supervisor.journal.entries import Decided, Entry, HaltedEntry, Intended, Looked, StopAsked, Withdrawn
from supervisor.looked import look_of
from supervisor.plan import AGENTS_WAIT_S, plan, unanswered, upkeep
from supervisor.remember import Notebook, remember

DEFAULT_RETRY_S = 10.0
HEARTBEAT_S = 30.0
"""With nothing to wait for, the loop still looks this often: a deadline must never be missed by a bug elsewhere."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What one look came to. `held` says why the next step did not happen; `next_look` is wall time."""

    entries: tuple[Entry, ...]
    actions: tuple[Action, ...]
    decision: Decision
    held: Held | None
    history: History
    next_look: float


def tick(history: History, view: View, layout: Layout, rules: Rules, now: float, lag_s: float = 0.0) -> Tick:
    """One turn. `lag_s`: how long the cluster may take to show what has been done (visibility lag), seconds."""
    book = Notebook(history, now)
    remember(book, view, layout, rules)
    decision = decide(book.history, view, layout, rules, now)
    _note_decision(book, decision, Situation(book.history, view, layout, rules, now))
    chosen: list[Action] = []
    held: Held | None = None
    due = [now + HEARTBEAT_S, *_deadlines(decision, book.history, view, rules)]
    for action in plan(decision, book.history, rules):
        if actions.is_done(action, view) and not _must_be_journaled(action, book.history):
            continue
        retry_at = _retry_at(action, book.history, lag_s)
        if actions.key(action) in view.at_work and isinstance(action, actions.SLOW):
            break  # its end is a signal
        if retry_at is not None and retry_at > now:
            due.append(retry_at)
            break
        permission = gate(action, decision, book.history, rules)
        if isinstance(permission, Held):
            held = permission
            break
        if isinstance(action, actions.Launch) and (not _is_down(book.history) or _unheard(action, view, history, now)):
            due.append(now + 1.0)
            break
        if isinstance(action, actions.Launch) and unanswered(decision, view):
            asked = question(book.history, rules, now)  # the answer is a signal; that there is none shows here
            due += [asked.until if asked and asked.until > now else now + 1.0]
            break
        chosen.append(action)
        break
    for action in upkeep(book.history, view, rules, now):
        retry_at = _retry_at(action, book.history, lag_s)
        if actions.key(action) in view.at_work and isinstance(action, actions.SLOW):
            continue
        if retry_at is not None and retry_at > now:
            due.append(retry_at)
        elif not isinstance(gate(action, decision, book.history, rules), Held):
            chosen.append(action)
    for action in chosen:
        book.note(Intended(action))
    next_look = min(moment for moment in due if moment > now)  # what was due by now has just been looked at
    return Tick(tuple(book.entries), tuple(chosen), decision, held, book.history, next_look)


def _must_be_journaled(action: Action, history: History) -> bool:
    """A bar is done by its entry alone, and an attempt that the journal does not know was not launched by this plan."""
    if isinstance(action, actions.Launch):
        return all(a.number != action.attempt for a in history.attempts)
    ours = {b.node for b in history.bars if isinstance(action, actions.Bar) and b.incident == action.incident}
    return isinstance(action, actions.Bar) and not set(action.nodes) <= ours  # an older bar may have run out


def _is_down(history: History) -> bool:
    """No launch while an attempt before may still have a rank that can be reached."""
    return history.attempt is None or history.attempt.closed_at is not None


def _unheard(launch: actions.Launch, view: View, history: History, now: float) -> bool:
    """Is a node of the plan still without an agent, as when the nodes were let go after a halt and began anew?"""
    if view.nodes is UNKNOWN or now >= history.listens_since + AGENTS_WAIT_S:
        return False
    found = [view.nodes[name] for name in launch.slots if name in view.nodes]
    return any(node.state is NodeState.UP and not node.agent for node in found)


def _note_decision(book: Notebook, decision: Decision, situation: Situation) -> None:
    """Sticky decisions are journaled when they change; what the world contradicts is withdrawn first."""
    before = book.history.decision

    def look() -> None:
        book.note(Looked(look_of(situation.view, book.history, situation.layout.world)))

    if isinstance(decision, Halt) and book.history.halted is None:
        look()
        book.note(Decided(decision, None))
        book.note(HaltedEntry(decision.reason, decision.seen, decision.lifts, decision.incident))
    elif isinstance(decision, Recover | Contain | PlannedStop | Finish) and decision != before:
        look()
        if isinstance(decision, PlannedStop) and book.history.stop_asked is None:
            book.note(StopAsked("relight", decision.then, why=decision.text))
        if isinstance(before, Recover) and isinstance(decision, Recover):
            why = contradiction(situation, before) or "another plan is better now"
            book.note(Withdrawn(book.history.decision_digest, why))
        book.note(Decided(decision, digest(decision)))


def _retry_at(action: Action, history: History, lag_s: float) -> float | None:
    """When an effect that was asked for may be asked for again; None when it never was.

    What an older epoch intended may never have been asked for: this epoch asks as soon as the cluster would show it.
    """
    intent = history.intents.get(actions.key(action))
    if intent is None:
        return None
    if intent.epoch != history.epoch:
        return history.epoch_began_at + lag_s
    pause = RETRY_S.get(action.kind, DEFAULT_RETRY_S) * 2.0 ** min(intent.tries - 1, 10)
    return intent.at + min(pause, RETRY_MAX.get(action.kind, RETRY_MAX_S))


def _deadlines(decision: Decision, history: History, view: View, rules: Rules) -> list[float]:
    due = []
    if isinstance(decision, Wait):
        due.append(decision.until)
    if isinstance(decision, Continue) and decision.until is not None:
        due.append(decision.until)
    stalled = stall_at(history, view, rules)
    if stalled is not None:
        due.append(stalled)
    incident = history.incident
    if incident is not None and incident.times.evidence is None and incident.times.confirmed is not None:
        due.append(incident.times.confirmed + rules.evidence.capture_s)
    return due
