"""The shell around `tick`: it wakes at the next signal or at `next_look`, journals, acts, and looks again.

Constructing it is recovery: take the lease, begin the next epoch, fold what was written, observe.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import structlog

from policies.facts import Attempt, Decision, Finish, Halt, History, Recover, View
from policies.rules import Rules
from slurm.cluster import Cluster
from supervisor import notices
from supervisor.answers import judge
from supervisor.checkpoints.store import PosixStore
from supervisor.durable import replace_whole
from supervisor.fold import fold_all
from supervisor.incident_facts import Known
from supervisor.journal import requests
from supervisor.journal.entries import Entry, ModeSet, Reopened, RunStarted, Told
from supervisor.journal.journal import Journal
from supervisor.journal.lease import STALE_S, Lease
from supervisor.observe.hub import Hub
from supervisor.observe.world import World
from supervisor.perform.effects import Effects, Ports
from supervisor.record import write_incident
from supervisor.rundir import RunDir
from supervisor.settings import Settings
from supervisor.status import status_json
from supervisor.step_rows import StepFile, read_rows, reference
from supervisor.tick import Tick, tick

HALTED_EXIT = 93
REQUESTS_S = 0.5
"""How often the requests' folder is looked at; a request also waits through at most this."""
CLUSTER_S = 1.0
STORE_S = 5.0
"""How often cluster and store are read without a hint that something has changed."""
STATUS_S = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is built from (`app.py` builds the real ones)."""

    run: RunDir
    settings: Settings
    rules: Rules
    cluster: Cluster
    store: PosixStore
    clock: Callable[[], float] = time.time
    lag_s: float = 0.0
    wrap_effects: Callable[[Effects], Effects] | None = None


class Controller:
    """One epoch of a run."""

    def __init__(self, parts: Parts) -> None:
        """Raises LeaseHeldError, JournalDamagedError, OSError."""
        self.parts = parts
        run, clock = parts.run, parts.clock
        self.layout = parts.settings.shape()
        self._lease = Lease(run.path("lease"), clock())
        self.journal, before = Journal.begin(run.journal, clock, os.uname().nodename, os.getpid())
        self._lease.renew(clock(), self.journal.epoch)
        self.history = fold_all(History(), before)
        self._rows = StepFile(run)
        self._log = structlog.get_logger()
        self._said: tuple[object, ...] = ()
        self._workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="relight")
        self._reading: dict[str, Future[None]] = {}
        self._again: set[str] = set()
        self._saves: tuple[tuple[int, str], ...] = ()
        self._status_at = 0.0
        self._closing = False
        self._told_incidents: dict[int, object] = {}

    # --- starting --------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Supervise until the run ends or halts; the exit code of `relight run`."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        parts, run = self.parts, self.parts.run
        self._begin_entries()
        self.hub = Hub(run.root, run.token(), parts.clock, self.wake, beat_s=0.5, silent_s=parts.rules.node.silent_s)
        self._adopt()
        port = await self.hub.start()
        run.write_endpoint("127.0.0.1", port, self.journal.epoch)
        parts.store.create()
        self.world = World(run, parts.cluster, parts.store, self.hub)
        ports = Ports(
            run,
            parts.settings,
            self.layout,
            parts.cluster,
            parts.store,
            self.hub,
            self.journal.epoch,
            parts.rules.evidence.capture_s,
        )
        effects = Effects(ports, self._workers, self.look_again)
        self.effects = parts.wrap_effects(effects) if parts.wrap_effects else effects
        parts.cluster.on_change(lambda: self.look_again("cluster"))
        for part in ("cluster", "store"):
            self.look_again(part)
        timers: list[asyncio.Task[int]] = [
            asyncio.create_task(work)
            for work in (
                self._every(CLUSTER_S, "cluster"),
                self._every(STORE_S, "store"),
                self._requests(),
                self._renew(),
            )
        ]
        turns = asyncio.create_task(self._turns())
        try:
            done, _ = await asyncio.wait({turns, *timers}, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()  # a timer only ends by an exception, which ends this process
        finally:
            self._closing = True
            for task in (turns, *timers):
                task.cancel()
            await self.hub.close()
            self._rows.close()
            await asyncio.to_thread(self._workers.shutdown)
            self.journal.close()

    def _begin_entries(self) -> None:
        settings, mode = self.parts.settings, self.parts.rules.mode
        one = settings.layout
        first = RunStarted(settings.run.name, mode, one.tp, one.pp, one.dp, one.ranks_per_node)
        entries: list[Entry] = [first] if self.history.started_at is None else []
        if self.history.started_at is not None and self.history.mode != mode:
            entries.append(ModeSet(mode))
        if self.history.ended == "stopped":
            entries.append(Reopened(settings.run.name))
        self._write(entries)

    def _adopt(self) -> None:
        """Take over what runs: the newest attempt, its rows, its saves, and the rows that it does again."""
        attempt = self.history.attempt
        if attempt is None:
            self.hub.set_attempt(self.journal.epoch, 0, self.layout.world)
            return
        self._point_hub_at(attempt)
        self.hub.restore(attempt.number, read_rows(self.parts.run, attempt.number))
        self.hub.scan_exits(attempt.number)

    def _point_hub_at(self, attempt: Attempt) -> None:
        self.hub.set_attempt(self.journal.epoch, attempt.number, self.layout.world, attempt.slots)
        rows = reference(self.parts.run, self.history)
        self.hub.set_reference(attempt.number, rows, self.parts.rules.probation.loss_tolerance)

    # --- waking ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look soon. For the loop's own thread."""
        self._wake.set()

    def look_again(self, part: str) -> None:
        """Read a part of the world again and wake; from any thread. While it is being read, once more afterwards."""
        self._loop.call_soon_threadsafe(self._read, part)

    def _read(self, part: str) -> None:
        if part in {"capture", "released"} or self._closing:
            self._wake.set()
            return
        if part in self._reading:
            self._again.add(part)
            return
        now = self.parts.clock()
        attempt = self.history.attempt
        checkpoint = attempt.checkpoint if attempt else None
        if part == "cluster":
            job = self._workers.submit(self.world.refresh_cluster, now)
        else:
            job = self._workers.submit(self.world.refresh_store, now, checkpoint)
        self._reading[part] = job
        job.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._have_read, part))

    def _have_read(self, part: str) -> None:
        job = self._reading.pop(part)
        job.result()  # an unexpected exception ends this process; its parent restarts it
        self._wake.set()
        if part in self._again:
            self._again.discard(part)
            self._read(part)

    async def _every(self, seconds: float, part: str) -> int:
        while True:
            await asyncio.sleep(seconds)
            self._read(part)

    async def _requests(self) -> int:
        folder = self.parts.run.path("requests")
        while True:
            if any(name.endswith(".json") for name in os.listdir(folder)):
                self._wake.set()
            await asyncio.sleep(REQUESTS_S)

    async def _renew(self) -> int:
        while True:
            await asyncio.sleep(STALE_S / 3)
            self.journal.check_fence()
            self._lease.renew(self.parts.clock(), self.journal.epoch)

    # --- turning ---------------------------------------------------------------------------------------------------

    async def _turns(self) -> int:
        while True:
            now = self.parts.clock()
            self._wake.clear()
            self._keep_rows()
            view = self._view(now)
            self._follow_saves(view)
            self._answer(view)
            turn = tick(self.history, view, self.layout, self.parts.rules, now, self.parts.lag_s)
            before = self.history
            self._write(list(turn.entries), now)
            self._follow(before, turn)
            for action in turn.actions:
                self.effects.perform(action, self.history)
            self._tell(turn, view, now)
            self._say(turn)
            self._status(turn, view, now, force=bool(turn.entries))
            code = self._exit(turn.decision, now)
            if code is not None:
                self._status(turn, view, now, force=True)
                return code
            if turn.entries:
                continue  # something is left to do, or may be: look again at once
            wait = min(turn.next_look, self._hold_until()) - self.parts.clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.005, wait)):
                    await self._wake.wait()

    def _view(self, now: float) -> View:
        self.world.capture = self.effects.capture
        self.world.failures = tuple(self.effects.failures.items())
        self.world.released = self.effects.released
        return self.world.view(self.history, now)

    def _keep_rows(self) -> None:
        self._rows.write(self.hub.drain_rows())

    def _follow_saves(self, view: View) -> None:
        """A word of the ranks about a save is a hint to look at the store."""
        saves = tuple((s.step, s.state) for s in view.attempt.saves) if view.attempt else ()
        if saves != self._saves:
            self._saves = saves
            self._read("store")

    def _write(self, entries: list[Entry], now: float | None = None) -> None:
        """Journal first; what is remembered is what was written."""
        at = self.parts.clock() if now is None else now
        self.history = fold_all(self.history, self.journal.append(entries, at))

    def _answer(self, view: View) -> None:
        for request in requests.pending(self.parts.run.root):
            reply = judge(request, self.history, view)
            self._write(list(reply.entries))
            requests.answer(self.parts.run.root, reply.answer)

    def _follow(self, before: History, turn: Tick) -> None:
        """What must follow at once from what was just journaled: the rows to compare with, the incident's record."""
        attempt = self.history.attempt
        if attempt is not None and (before.attempt is None or before.attempt.number != attempt.number):
            self._point_hub_at(attempt)
            self._read("store")
        closed = attempt is not None and attempt.closed_at is not None
        if closed and before.attempt is not None and before.attempt.closed_at is None:
            self._read("store")
        for incident in self.history.incidents[-2:]:
            if self._told_incidents.get(incident.number) != incident:
                self._told_incidents[incident.number] = incident
                write_incident(self.parts.run, self.history, incident.number, self.parts.settings)
        del turn

    def _tell(self, turn: Tick, view: View, now: float) -> None:
        """Tell a person once when a decision waits, or something halts. A slow notice never holds up the loop."""
        watching = turn.held is not None and self.history.mode == "observe" and isinstance(turn.decision, Recover)
        what: notices.What | None = None
        if turn.held is not None and (turn.held.asks or watching):
            what = "plan"
        elif self.history.halted is not None:
            what = "halt"
        if what is None:
            return
        saves = view.checkpoints if isinstance(view.checkpoints, tuple) else ()
        held = turn.held.why if turn.held and turn.held.asks else ""
        known = Known(layout=self.layout, now=now, checkpoints=saves, held=held)
        notice = notices.notice(self.history, what, known, hold_s=self.parts.rules.hold_s)
        if notice is None:
            return
        story = notices.page(self.history, what, known)
        self._write([Told(notice.key, notice.title)])
        self._log.warning("notice", text=notice.text)
        settings = self.parts.settings.notify
        if settings.command:
            notices.run_command(settings.command, notice, story, settings.deadline_s).add_done_callback(self._told)

    def _told(self, future: Future[notices.Outcome]) -> None:
        outcome = future.result()
        if not outcome.ok:
            self._log.error("notice-failed", why=outcome.why)

    def _say(self, turn: Tick) -> None:
        """One line when the reason changes."""
        decision = turn.decision
        said = (type(decision), decision.reason, turn.held, getattr(decision, "incident", None))
        if said == self._said:
            return
        self._said = said
        held = {"held": turn.held.why} if turn.held else {}
        incident = self.history.incident
        extra = {"incident": incident.number} if incident else {}
        attempt = {"attempt": self.history.attempt.number} if self.history.attempt else {}
        self._log.info(f"decision {decision_name(decision)}", reason=decision.reason.value, **attempt, **extra, **held)

    def _status(self, turn: Tick, view: View, now: float, *, force: bool) -> None:
        if not force and now - self._status_at < STATUS_S:
            return
        self._status_at = now
        shown = status_json(view, turn.decision, turn.held, now)
        replace_whole(self.parts.run.path("status.json"), json.dumps(shown).encode())

    def _hold_until(self) -> float:
        halted = self.history.halted
        return float("inf") if halted is None else halted.at + self.parts.rules.hold_s

    def _exit(self, decision: Decision, now: float) -> int | None:
        attempt = self.history.attempt
        down = attempt is None or attempt.closed_at is not None
        if isinstance(decision, Finish) and self.history.ended and self.effects.released:
            return 0
        if isinstance(decision, Halt) and down and now >= self._hold_until():
            self.parts.cluster.release(self.journal.epoch)
            return HALTED_EXIT
        return None


def decision_name(decision: Decision) -> str:
    """The decision's name in words."""
    return {"PlannedStop": "planned stop"}.get(type(decision).__name__, type(decision).__name__.lower())
