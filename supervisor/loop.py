"""One turn of the loop: look, answer, tick, journal, act, tell. Synchronous, so that the real shell and the simulation share it.

The order is the promise: nothing is done before its intent is in the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import structlog

from policies.brokensave import newest_broken
from policies.decisions import Decision, Finish, Halt
from policies.facts import CheckpointPhase, Unknown, View
from policies.history import Attempt, History
from policies.layout import Layout
from policies.rules import Rules, as_text
from policies.situation import LOOK_AGAIN_S, Situation
from supervisor.answers import judge, not_before
from supervisor.errors import HALTED_EXIT
from supervisor.fold import fold_all
from supervisor.journal.entries import Entry, ModeSet, Reopened, RulesSet, RunStarted, StopAsked, Told
from supervisor.observe.world import World
from supervisor.perform.effects import Effects
from supervisor.plan import chores_at, held_until
from supervisor.ports import Agents, AttemptFiles, Desk, Log
from supervisor.step_rows import reference
from supervisor.telling import notices
from supervisor.telling.copies import known_saves
from supervisor.telling.due import due, what
from supervisor.telling.incident_facts import Known
from supervisor.telling.seen import seen_of
from supervisor.telling.told import matter
from supervisor.tick import Tick, tick

STATUS_S = 1.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn came to: look again at `next_look` (wall seconds) or now if `again`; `code`: the run is over.

    `chores_at`: when a run that trains has something to be done of itself, for a shell that jumps over quiet hours.
    """

    next_look: float
    again: bool
    code: int | None
    chores_at: float = inf


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a loop works with. `look_again(part)` asks the shell to read cluster or store anew."""

    run: str
    layout: Layout
    rules: Rules
    journal: Log
    world: World
    effects: Effects
    agents: Agents
    files: AttemptFiles
    desk: Desk
    look_again: Callable[[str], None]
    lag_s: float = 0.0
    on_view: Callable[[History, View, float], None] = lambda *_: None


class Loop:
    """The controller without its shell. Building it folds what was written and takes over what runs."""

    def __init__(self, scene: Scene, history: History, now: float, *, again: bool) -> None:
        """`again`: it follows a controller that died. A run that was stopped as planned goes on only when it is started anew."""
        self.scene = scene
        self.history = history
        self._log = structlog.get_logger()
        self._said: tuple[object, ...] = ()
        self._saves: tuple[tuple[int, str], ...] = ()
        self._status_at = 0.0
        self._archive_at = 0.0
        self._recorded: dict[int, object] = {}
        self.stop_asked_by: str | None = None
        self._begin(now, again=again)
        attempt = self.history.attempt
        if attempt is None:
            scene.agents.set_attempt(scene.journal.epoch, 0, scene.layout.world)
        else:
            self._follow_attempt(attempt)
            scene.agents.restore(attempt.number, scene.files.rows(attempt.number))
            scene.agents.scan_exits(attempt.number)

    def _begin(self, now: float, *, again: bool) -> None:
        one, mode = self.scene.layout, self.scene.rules.mode
        entries: list[Entry] = []
        if self.history.started_at is None:
            entries.append(RunStarted(self.scene.run, mode, one.tp, one.pp, one.dp, one.ranks_per_node))
        elif self.history.mode != mode:
            entries.append(ModeSet(mode))
        if self.history.rules != (told := as_text(self.scene.rules)):
            entries.append(RulesSet(told))
        if self.history.ended == "stopped" and not again:
            entries.append(Reopened(self.scene.run))
        self._write(entries, now)

    def turn(self, now: float) -> Turn:
        """One turn at wall time `now`."""
        scene = self.scene
        scene.files.write_rows(scene.agents.drain_rows())
        view = scene.world.view(self.history, now, scene.effects)
        scene.on_view(self.history, view, now)
        self._follow_saves(view)
        self._follow_archive(view, now)
        later = inf
        for request in scene.desk.pending():
            wait = not_before(request, self.history, view)
            if wait is not None and wait > now:
                later = min(later, wait)
                continue
            reply = judge(request, self.history, view, now)
            self._write(list(reply.entries), now)
            scene.desk.answer(reply.answer)
        if self.stop_asked_by and not self.history.stop_asked and not self.history.ended:
            self._write([StopAsked(self.stop_asked_by)], now)
        ticked = tick(self.history, view, scene.layout, scene.rules, now, scene.lag_s)
        before = self.history
        self._write(list(ticked.entries), now)
        self._freeze(before, view, now)
        self._follow(before)
        for action in ticked.actions:
            scene.effects.perform(action, self.history)
        scene.effects.end_turn()
        self._record()
        self._tell(ticked, view, now)
        self._write(list(scene.desk.carried(matter(self.history))), now)
        scene.desk.ticked()
        self._say(ticked)
        code = self._exit(ticked.decision, view, now)
        if ticked.entries or code is not None or now - self._status_at >= STATUS_S:
            self._status_at = now
            scene.desk.status(view, ticked.decision, ticked.held, now)
        chores = chores_at(self.history, view, scene.rules, now)
        return Turn(min(ticked.next_look, self._hold_until(), later), bool(ticked.entries), code, chores)

    def _write(self, entries: list[Entry], now: float) -> None:
        """Journal first; what is remembered is what was written."""
        self.history = fold_all(self.history, self.scene.journal.append(entries, now))

    def _follow_saves(self, view: View) -> None:
        """A word of the ranks about a save is a hint to look at the store."""
        saves = tuple((s.step, s.state) for s in view.attempt.saves) if view.attempt else ()
        if saves != self._saves:
            self._saves = saves
            self.scene.look_again("store")

    def _follow_archive(self, view: View, now: float) -> None:
        """While something waits for a checkpoint and the store shows none, the archive is looked at again and again."""
        attempt = self.history.attempt
        waits = self.history.incident is not None or attempt is None or attempt.closed_at is not None
        if not view.has_archive or not waits or isinstance(view.checkpoints, Unknown):
            return
        if any(c.phase is CheckpointPhase.COMPLETED for c in view.checkpoints) or now - self._archive_at < LOOK_AGAIN_S:
            return
        self._archive_at = now
        self.scene.look_again("archive")

    def _follow_attempt(self, attempt: Attempt) -> None:
        scene = self.scene
        scene.agents.set_attempt(scene.journal.epoch, attempt.number, scene.layout.world, attempt.slots)
        band = scene.rules.probation
        rows = reference(scene.files, self.history)
        scene.agents.set_reference(attempt.number, rows, band.loss_tolerance, band.window)

    def _follow(self, before: History) -> None:
        """What must follow at once from what was just journaled: the rows to compare with, a look."""
        attempt = self.history.attempt
        if attempt is not None and (before.attempt is None or before.attempt.number != attempt.number):
            self._follow_attempt(attempt)
            self.scene.look_again("store")
        elif attempt is not None and attempt.closed_at and before.attempt and not before.attempt.closed_at:
            self.scene.look_again("store")

    def _freeze(self, before: History, view: View, now: float) -> None:
        """What is to be seen when the evidence of an incident is in: soon after, its attempt is stopped."""
        incident, was = self.history.incident, before.incident
        if incident is None or incident.times.evidence is None or (was is not None and was.times.evidence is not None):
            return
        self.scene.files.keep_seen(incident.number, seen_of(view, now))

    def _record(self) -> None:
        """The incident's record, once what was decided is under way: nobody waits for it, the ranks wait for the rest."""
        for incident in self.history.incidents[-2:]:
            if self._recorded.get(incident.number) is not incident:
                self._recorded[incident.number] = incident
                self.scene.desk.record(self.history, incident.number)

    def _tell(self, ticked: Tick, view: View, now: float) -> None:
        """Tell a person when a decision waits, when something halts, or will go wrong if nobody looks: once, and reminders."""
        held = ticked.held
        about = what(self.history, ticked.decision, held)
        aside = Known(layout=self.scene.layout, now=now)
        self._send(notices.not_drained(self.history, aside), "warning", aside, now)
        situation = Situation(self.history, view, self.scene.layout, self.scene.rules, now)
        self._send(notices.save_broken(self.history, newest_broken(situation), aside), "warning", aside, now)
        if about is None:
            return
        why = held.why if held and held.asks else ""
        known = Known(layout=self.scene.layout, now=now, checkpoints=known_saves(view), held=why)
        self._send(due(self.history, ticked.decision, about, known, self.scene.rules), about, known, now)

    def _send(self, notice: notices.Notice | None, about: notices.What, known: Known, now: float) -> None:
        if notice is None:
            return
        story = notices.page(self.history, about, known)
        self._log.warning("notice", text=notice.text)
        before = self.history.tellings.get(notice.key)
        to = self.scene.desk.tell(notice, story, before.reached if before else ())
        self._write([Told(notice.key, notice.title, to)], now)  # after it: rather told twice than never

    def _say(self, ticked: Tick) -> None:
        """One line when the reason changes."""
        decision = ticked.decision
        said = (type(decision), decision.reason, ticked.held, getattr(decision, "incident", None))
        if said == self._said:
            return
        self._said = said
        more: dict[str, object] = {"held": ticked.held.why} if ticked.held else {}
        if self.history.incident:
            more["incident"] = self.history.incident.number
        if self.history.attempt:
            more["attempt"] = self.history.attempt.number
        if self.history.decision_digest:
            more["plan"] = self.history.decision_digest[:6]
        self._log.info(f"decision {decision.kind}", reason=decision.reason.value, mode=self.history.mode, **more)

    def _hold_until(self) -> float:
        return held_until(self.history, self.scene.rules)

    def _exit(self, decision: Decision, view: View, now: float) -> int | None:
        """The exit code when all is done that was to be done."""
        attempt = self.history.attempt
        down = attempt is None or attempt.closed_at is not None
        if not self.scene.effects.released:
            return None
        if self.history.ended == "next-job" and view.job is not None and view.job.next.isdigit():
            return 0  # it begins when this one has ended; one that is requeued begins by itself, and ends us if we are in it
        if isinstance(decision, Finish) and self.history.ended:
            return 0
        if isinstance(decision, Halt) and down and now >= self._hold_until():
            return HALTED_EXIT
        return None
