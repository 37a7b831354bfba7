"""What is made of a request: entries for the journal, and the answer to its sender. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from policies import spares
from policies.decisions import Recover, Then
from policies.facts import EMPTY, UNKNOWN, CheckpointPhase, View
from policies.history import Choice, History
from policies.reasons import Reason
from policies.skipping import merge, spans_text
from supervisor.journal.entries import (
    Approved,
    Chosen,
    Ended,
    Entry,
    HaltedEntry,
    Paused,
    Refused,
    RequestAnswered,
    Resumed,
    StopAsked,
    Unbarred,
)
from supervisor.journal.requests import Answer, Request
from supervisor.plan import AGENTS_WAIT_S

PREFIX_MIN = 6
"""So many characters of a plan's digest must be given."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Entries to journal, and what the sender is told."""

    entries: tuple[Entry, ...]
    answer: Answer


def _no(request: Request, text: str, exit_code: int = 4) -> Reply:
    entry = RequestAnswered(request.id, request.what, request.who, "refused", text, exit_code)
    return Reply((entry,), Answer(request.id, "refused", text, exit_code))


def _yes(request: Request, text: str, *entries: Entry) -> Reply:
    entry = RequestAnswered(request.id, request.what, request.who, "done", text)
    return Reply((*entries, entry), Answer(request.id, "done", text, 0))


def not_before(request: Request, history: History, view: View) -> float | None:
    """Until when (wall seconds) a request is left where it is; None: it can be judged now.

    Whether a node may be a spare and a save restored is not known to a controller that has just come, or sees nothing.
    """
    if request.id in history.requests or not (request.what == "choose" or request.keep_nodes):
        return None
    if view.nodes is UNKNOWN or view.checkpoints is UNKNOWN:
        return inf
    unheard = [n for n in request.spares if n in view.nodes and not view.nodes[n].agent]
    return history.listens_since + AGENTS_WAIT_S if unheard else None


def judge(request: Request, history: History, view: View, now: float) -> Reply:
    """Answer one request. `now` is wall seconds.

    A controller that died between the journal and the answer has left the request there: the same is answered again.
    """
    before = history.requests.get(request.id)
    if before is not None:
        return Reply((), Answer(request.id, before.outcome, before.text, before.exit))
    match request.what:
        case "approve" | "refuse":
            return _plan(request, history)
        case "choose":
            return _choose(request, history, view, now)
        case "pause":
            if history.paused:
                return _yes(request, "the run was paused already")
            return _yes(request, "paused: it watches, seals and tells; it starts and stops nothing", _pause(request))
        case "resume":
            return _resume(request, history, view, now)
        case "halt":
            return _halt(request, history)
        case "stop":
            return _stop(request, history, view)
        case "unbar":
            return _unbar(request, history, view, now)


def _stop(request: Request, history: History, view: View) -> Reply:
    """A stop with a save, or as soon as a save is completed. In the next job a halted run goes on too."""
    if history.ended == "next-job" and not request.next_job:
        wish = StopAsked(request.who, "end", why=request.why)  # of a person: no next job fulfils it
        return _yes(request, "the run does not go on in its next job", wish, Ended("stopped"))
    if history.ended or history.attempt is None:
        return _no(request, "nothing is running")
    if history.halted is not None and not request.next_job:
        return _no(request, "the run is halted: nothing is running")
    if request.next_job and history.mode == "observe":
        so = "Stop it without, and submit the job script anew, with --profile approve"
        return _no(request, f"--next-job: mode observe asks for no job, and seals no save for one to go on from. {so}")
    if request.next_job and (view.job is None or not view.job.can_follow):
        none = "no job holds its nodes" if view.job is None else "no next job can be asked for ([cluster] next_job)"
        return _no(request, f"--next-job: {none}")
    how = "the ranks are stopped once the next save is completed" if request.after_save else ""
    how = how or ("the ranks are asked to save and stop" if history.halted is None else "the halt is lifted")
    lifted = () if history.halted is None else (Resumed(request.who, request.why or "it goes on in the next job"),)
    then: Then = "next-job" if request.next_job else "end"
    wish = StopAsked(request.who, then, request.after_save, request.why)
    return _yes(request, how + ("; the run goes on in its next job" if request.next_job else ""), *lifted, wish)


def _pause(request: Request) -> Paused:
    return Paused(request.who, request.why)


def _plan(request: Request, history: History) -> Reply:
    open_digest = history.decision_digest
    if not isinstance(history.decision, Recover) or open_digest is None or history.decision.incident is None:
        return _no(request, f"no plan is open. See: relight status {history.run}")
    if len(request.digest) < PREFIX_MIN:
        return _no(request, f"plan {request.digest}: give {PREFIX_MIN} characters or more of the plan", 2)
    if not open_digest.startswith(request.digest):
        now = f"The plan is now {open_digest[:PREFIX_MIN]}. See: relight plan {history.run}"
        return _no(request, f"plan {request.digest} is no longer open. {now}")
    if request.what == "approve":
        if open_digest in history.approvals:
            return _yes(request, f"plan {open_digest[:PREFIX_MIN]} was approved already")
        return _yes(request, f"plan {open_digest[:PREFIX_MIN]} approved", Approved(open_digest, request.who))
    if not request.why.strip():
        return _no(request, 'a refusal takes a reason: --because "..."', 2)
    text = f"plan {open_digest[:PREFIX_MIN]} refused; the run halts until: relight resume {history.run}"
    return _yes(request, text, Refused(open_digest, request.who, request.why))


def _choose(request: Request, history: History, view: View, now: float) -> Reply:
    if not isinstance(history.decision, Recover) or history.decision.incident is None:
        return _no(request, f"no plan is open. See: relight status {history.run}")
    if request.checkpoint:
        states = () if view.checkpoints is UNKNOWN else view.checkpoints
        copies = () if view.archive is UNKNOWN else view.archive
        usable = list(dict.fromkeys(c.id for c in (*copies, *states) if c.phase is CheckpointPhase.COMPLETED))
        if request.checkpoint not in usable:
            shown = ", ".join(usable[-4:]) or "none"
            return _no(request, f"checkpoint {request.checkpoint} is not a completed one. Completed: {shown}", 2)
    named = (*request.spares, *request.keep_nodes)
    if wrong := _stranger(named, view) or _kept_too_late(request, history, now):
        return _no(request, wrong, 2)
    nodes = EMPTY if view.nodes is UNKNOWN else view.nodes
    slots = history.attempt.slots if history.attempt else ()
    for node in request.spares:
        why = spares.why_not(nodes[node], slots, history.barred(now))
        if why is not None:
            return _no(request, f"{node} can't be a spare: {why}", 2)
    before = history.choice
    choice = Choice(
        checkpoint=request.checkpoint or before.checkpoint,
        spares=request.spares or before.spares,
        keep_nodes=request.keep_nodes or before.keep_nodes,
        skip_samples=merge(before.skip_samples, request.skip_samples),
    )
    return _yes(request, "the plan is made again", Chosen(choice, request.who))


def _resume(request: Request, history: History, view: View, now: float) -> Reply:
    if history.halted is None and not history.paused:
        return _no(request, "the run is neither halted nor paused")
    if history.halted is not None and not request.why.strip():
        return _no(request, 'lifting a halt takes a reason: --because "..."', 2)
    if history.halted is None and request.skip_samples:
        return _no(request, f"samples are left out of a halted run, or by a plan: relight plan {history.run}", 2)
    if history.halted is None and request.keep_nodes:
        return _no(request, f"a node is kept by a halted run, or by a plan: relight plan {history.run}", 2)
    if wrong := _stranger(request.keep_nodes, view) or _kept_too_late(request, history, now):
        return _no(request, wrong, 2)
    what = "the halt is lifted" if history.halted is not None else "no longer paused"
    skip = merge(request.skip_samples)
    if skip:
        what += f"; left out from here on: {spans_text(skip)}"
    if request.keep_nodes:
        what += f"; not barred for this incident: {', '.join(request.keep_nodes)}"
    return _yes(request, what, Resumed(request.who, request.why, skip, request.keep_nodes))


def _stranger(named: tuple[str, ...], view: View) -> str | None:
    """The first of these that is no node of the run, said to the one who named it."""
    nodes = EMPTY if view.nodes is UNKNOWN else view.nodes
    wrong = next((node for node in named if node not in nodes), None)
    return f"{wrong} is no node of this run. Nodes: {', '.join(sorted(nodes)[:8])} ..." if wrong else None


def _kept_too_late(request: Request, history: History, now: float) -> str | None:
    """The first node to be kept that is barred already, said to the one who named it: a choice does not lift a bar."""
    late = next((node for node in request.keep_nodes if node in history.barred(now)), None)
    return f"{late} is barred already. Lift that: relight unbar {history.run} {late}" if late else None


def not_barred(nodes: Sequence[str], barred: Collection[str]) -> str:
    """Why no bar of these nodes can be lifted, with those that could be; empty where each of them is barred."""
    free = next((node for node in nodes if node not in barred), None)
    if free is None and nodes:
        return ""
    shown = ", ".join(sorted(barred)[:8]) + (" ..." if len(barred) > 8 else "")
    what = f"{free} is not barred" if free is not None else "no node is named"
    return f"{what}. Barred: {shown or 'none'}"


def _unbar(request: Request, history: History, view: View, now: float) -> Reply:
    """Lift the bars of nodes that are repaired. Nothing is believed of them: they come back through their checks."""
    barred, open_ones = history.barred(now), [b for b in history.bars if b.returned_at is None]
    if refusal := not_barred(request.nodes, barred):
        return _no(request, refusal, 2)
    nodes = tuple(n for n in dict.fromkeys(request.nodes) if any(b.node == n and not b.lifted_by for b in open_ones))
    if not nodes:
        return _yes(request, f"lifted already: {', '.join(request.nodes)}; back once the checks pass")
    text = f"bar lifted: {', '.join(nodes)}; a spare again, the last to be used, once the checks pass"
    wanting = [f"{n} ({why})" for n in nodes if view.nodes is not UNKNOWN and (why := spares.not_back(n, view.nodes))]
    text += f". Not yet: {', '.join(wanting)}" if wanting else ""
    # The gate holds it (gate.py), and who asks would believe that others have the node again.
    held = "is paused" if history.paused else "is in mode observe" if history.mode == "observe" else ""
    text += f". Our own drain in Slurm stays while the run {held}" if held else ""
    return _yes(request, text, Unbarred(nodes, request.who, request.why))


def _halt(request: Request, history: History) -> Reply:
    down = history.attempt is None or history.attempt.closed_at is not None
    if history.halted is not None and (history.asked_to_halt or down):
        return _yes(request, "the run was halted already")
    incident = history.incident.number if history.incident else None
    seen = f"{request.who} asked for it" + (f": {request.why}" if request.why else "")
    entry = HaltedEntry(Reason.PERSON_HALTED, seen, "relight resume, with a reason", incident)
    return _yes(request, "halted: the attempt is stopped and nothing is started until it is resumed", entry)
