"""One life of the controller: the product's own loop, woken by simulated signals, killed where the story says.

What `supervisor/controller.py` does with threads and asyncio is done here with events; all else is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING

from policies.history import History
from supervisor.actions import Action
from supervisor.bench.world.points import KilledError
from supervisor.bench.world.workers import Workers
from supervisor.controller import ARCHIVE_S, BEAT_S, CLUSTER_S, STORE_S
from supervisor.fold import fold_all
from supervisor.journal.entries import Entry, Stamped
from supervisor.journal.journal import FencedError, Journal
from supervisor.loop import Loop, Scene, Turn
from supervisor.observe.hub import Hub
from supervisor.observe.world import World
from supervisor.perform.effects import Effects, Ports
from supervisor.ports import NoArchive

if TYPE_CHECKING:
    from supervisor.bench.world.agents import Agent
    from supervisor.bench.world.world import SimWorld

TURN_S = 0.001
"""A turn of the loop takes so long."""
READ_S = {"cluster": 0.02, "store": 0.05, "archive": 0.3}
PERIOD_S = {"cluster": CLUSTER_S, "store": STORE_S, "archive": ARCHIVE_S}
TURNS_MAX = 3_000
"""Turns within one simulated minute. More is a loop that turns and gets nowhere."""


class SimHub(Hub):
    """The product's hub; its one timer runs on simulated time."""

    later: Callable[[float, Callable[[], None]], None]

    def capture(self, incident: int, attempt: int, deadline_s: float = 30.0, *, stacks: bool = True) -> None:
        """Ask, and give up at the deadline."""
        super().capture(incident, attempt, deadline_s, stacks=stacks)
        asked = self._capturing
        if asked is not None:
            self.later(deadline_s, lambda: self._deadline(asked))


class SimEffects(Effects):
    """The product's effects, with a boundary before and after each."""

    passing: Callable[[str], None]
    kind = ""

    def perform(self, action: Action, history: History) -> None:
        """Perform one."""
        self.passing(f"effect before {action.kind}")
        self.kind = action.kind
        super().perform(action, history)
        self.passing(f"effect after {action.kind}")


class Witness:
    """The journal as the loop sees it, with somebody who reads along."""

    def __init__(self, journal: Journal, seen: Callable[[list[Stamped]], None]) -> None:
        self._journal = journal
        self._seen = seen

    @property
    def epoch(self) -> int:
        """The epoch of this controller."""
        return self._journal.epoch

    def append(self, entries: Iterable[Entry], at: float) -> list[Stamped]:
        """Write, then show."""
        stamped = self._journal.append(entries, at)
        self._seen(stamped)
        return stamped


class Life:
    """A controller from its start to its death."""

    def __init__(self, world: SimWorld, number: int, *, again: bool) -> None:
        self.again = again  # it follows one that died
        self.world = world
        self.number = number
        self.alive = True
        self.code: int | None = None
        self.turns = 0
        self._next: float | None = None
        self._token = 0
        self._hearing = True
        self._read_at: dict[str, float] = {}
        self._versions: dict[str, int] = {}
        self._reading: set[str] = set()
        self._minute = (0, 0)

    def start(self) -> None:
        """Claim an epoch, fold what was written, take over what runs."""
        self.guard(self._start)

    def _start(self) -> None:
        world, given = self.world, self.world.given
        journal, before = Journal.begin(world.disk, world.clock, "login1", self.number)
        world.watch.life_began(before)
        rules = given.rules
        self.hub = SimHub("/nonexistent/run", world.token, world.clock, self._heard, BEAT_S, rules.node.silent_s)
        self.hub.later = self.later
        cluster, store = world.plant.cluster(world.cluster), world.plant.store(world.store)
        archive = world.plant.archive(world.archive) if given.archive else None
        self.look = World(cluster, store, self.hub, world.files, given.layout, archive)
        workers = Workers(self.later, self._work_s, world.points.passing, twice=given.twice)
        ports = Ports(
            world.run,
            given.settings,
            given.layout,
            cluster,
            store,
            self.hub,
            world.files,
            journal.epoch,
            rules.evidence.capture_s,
            lambda: 29_500,
            lambda _: "/tmp/relight-sim",  # noqa: S108 - a name in a message; nothing is opened
            archive or NoArchive(),
        )
        self.effects = world.plant.effects(ports, workers, self.look_again)
        self.effects.passing = world.points.passing
        scene = Scene(
            run=given.settings.run.name,
            layout=given.layout,
            rules=rules,
            journal=world.plant.log(Witness(journal, world.watch.wrote)),
            world=self.look,
            effects=self.effects,
            agents=self.hub,
            files=world.files,
            desk=world.plant.desk(world.desk),
            look_again=self.look_again,
            lag_s=given.lag_s,
        )
        self.loop = Loop(scene, world.plant.recall(fold_all(History(), before)), world.time.now, again=self.again)
        self.epoch = journal.epoch
        world.points.passing("epoch begun")
        if journal.epoch == 1:
            store.create()
        self._refresh(first=True)
        self.look_again("archive")
        for index, agent in enumerate(world.agents.values()):
            delay = 0.05 + (index % 20) * 0.02 if len(world.agents) < 64 else 0.05
            self.later(delay, lambda agent=agent: self._connect(agent))  # type: ignore[misc]
        self.wake()

    def _connect(self, agent: Agent) -> None:
        self.world.connect(agent, self)

    # --- time -------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Plan something that only happens while this controller lives."""
        self.world.time.after(seconds, lambda: self.guard(do))

    def guard(self, do: Callable[[], None]) -> None:
        """Do something as this controller; it may be its end."""
        if not self.alive:
            return
        try:
            do()
        except KilledError:
            self.die()
        except FencedError:
            self.die(again=False)

    def die(self, *, again: bool = True) -> None:
        """Killed. Its parent starts another one, unless a newer one is there already."""
        self.alive = False
        self.world.life_over(self, again=again)

    def wake(self) -> None:
        """Look again very soon."""
        self._schedule(self.world.time.now + TURN_S)

    def _heard(self) -> None:
        """Something has come that a decision may hang on."""
        if self._hearing:
            self.wake()

    def _schedule(self, when: float) -> None:
        if self._next is not None and self._next <= when:
            return
        self._next = when
        self._token += 1
        token = self._token
        self.world.time.at(when, lambda: self.guard(self._turn) if token == self._token else None)

    def _turn(self) -> None:
        self._next = None
        world = self.world
        self._hearing = False
        world.catch_up()
        self._hearing = True
        self._refresh()
        self._count()
        turn = self.loop.turn(world.time.now)
        world.watch.turned(self)
        if turn.code is not None:
            self.code = turn.code
            self.alive = False
            world.life_over(self, again=False)
        elif turn.again:
            self.wake()
        elif not self._is_quiet(turn):
            self._schedule(max(world.time.now + TURN_S, turn.next_look))
        elif turn.chores_at < inf:
            self._schedule(max(world.time.now + TURN_S, turn.chores_at))

    def _count(self) -> None:
        self.turns += 1
        minute = int(self.world.time.now // 60)
        self._minute = (minute, self._minute[1] + 1 if self._minute[0] == minute else 1)
        if self._minute[1] > TURNS_MAX:
            raise AssertionError(f"{TURNS_MAX} turns within a minute, and nothing comes of them")

    def _is_quiet(self, turn: Turn) -> bool:
        """Nothing is open and the run advances: whatever changes that is an event, so the time until it can be jumped."""
        history, attempt = self.loop.history, self.loop.history.attempt
        if (
            turn.again
            or self._reading
            or attempt is None
            or attempt.accepted_at is None
            or attempt.closed_at is not None
        ):
            return False
        if history.incident is not None or history.decision is not None or history.halted or history.stop_asked:
            return False
        # an agent that was asked for on a machine that has died since stays asked for
        # and a copy or a reading says when it is done
        chores = {key for key in self.effects.at_work if key.startswith(("archive:", "scrub:"))}
        waits = any(not key.startswith(("start-agent:", "check:")) and key not in chores for key in history.intents)
        return not waits and self.world.is_calm(attempt.number)

    # --- looking ----------------------------------------------------------------------------------------------------

    def look_again(self, part: str) -> None:
        """A hint of the loop or of an effect: read that part now."""
        if part == "archive" and not self.world.given.archive:
            return
        if part in READ_S and part not in self._reading:
            self._reading.add(part)
            began = self.world.time.now
            if part == "archive":
                self.look.ask_archive(began)
            hangs = self.world.archive.lag() if part == "archive" else 0.0
            self.later(READ_S[part] + hangs, lambda: self._have_read(part, began))
        elif part not in READ_S:
            self.wake()

    def _have_read(self, part: str, began: float) -> None:
        self._reading.discard(part)
        same = part == "archive" and self._versions.get(part) == self.world.version(part)
        self._read(part, began)
        if not same:
            self.wake()

    def changed(self, part: str) -> None:
        """The world has changed: the next of the regular looks will show it."""
        if self.alive and self._versions.get(part) != self.world.version(part):
            self._schedule(max(self.world.time.now + TURN_S, self._read_at.get(part, 0.0) + PERIOD_S[part]))

    def _refresh(self, *, first: bool = False) -> None:
        """What the regular looks have shown by now. Their moments are multiples of their period from the last one."""
        now = self.world.time.now
        for part, period in (("cluster", CLUSTER_S), ("store", STORE_S)):
            age = now - self._read_at.get(part, 0.0)
            if first or age >= period:
                self._read(part, now if first else now - age % period)
        if not first and now - self._read_at.get("archive", now) >= ARCHIVE_S:
            self.look_again("archive")

    def _read(self, part: str, at: float) -> None:
        self._read_at[part] = at
        self._versions[part] = self.world.version(part)
        if part == "cluster":
            self.look.refresh_cluster(at)
        elif part == "archive":
            self.look.refresh_archive(at)
        else:
            attempt = self.loop.history.attempt
            self.look.refresh_store(at, attempt.checkpoint if attempt else None)

    def _work_s(self) -> float:
        return self.world.work_s(self.effects.kind)
