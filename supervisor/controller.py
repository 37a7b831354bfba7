"""The shell around the loop: one process, one epoch. It wakes at the next signal or at `next_look`, and reads in threads.

Constructing it is recovery: take the lease, begin the next epoch, fold what was written, observe.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from policies.facts import Copied
from policies.history import History
from policies.rules import Rules
from slurm.cluster import Cluster
from supervisor.attempt_files import RunFiles
from supervisor.desk import FileDesk
from supervisor.errors import UserError
from supervisor.fold import fold_all
from supervisor.journal.journal import Journal
from supervisor.journal.lease import STALE_S, Lease
from supervisor.lanes import Lanes
from supervisor.loop import Loop, Scene
from supervisor.moves import Moves
from supervisor.observe.hub import Hub
from supervisor.observe.world import World
from supervisor.perform.effects import Effects, Ports, free_port
from supervisor.ports import Archive, NoArchive, Store
from supervisor.reading import Reading
from supervisor.rundir import RunDir
from supervisor.settings import Settings

REQUESTS_S = 0.5
"""How often the requests' folder is looked at."""
CLUSTER_S = 1.0
STORE_S = 5.0
"""How often cluster and store are read without a hint that something has changed."""
ARCHIVE_S = 60.0
"""How often the archive is: nothing but a lost store makes it urgent, and then it is asked for by the loop."""
BEAT_S = 0.5


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the agents find the controller: `bind` is listened on, `tell` is what they are told."""

    bind: str = "127.0.0.1"
    tell: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is built from (`app.py` builds the real ones). `lag_s`: the cluster's visibility lag, seconds.

    `stops_on_signal`: SIGTERM and SIGINT ask for a planned stop of the run; else they end this process alone, as SIGKILL does.
    `on_turn` is told the seconds that each turn of the loop took. `free_port` gives a port for the ranks to meet at.
    """

    run: RunDir
    settings: Settings
    rules: Rules
    cluster: Cluster
    store: Store
    clock: Callable[[], float] = time.time
    lag_s: float = 0.0
    wrap_effects: Callable[[Effects], Effects] | None = None
    archive: Archive | None = None
    moves: Moves = field(default_factory=Moves)
    drilled: Callable[[], Copied | None] = lambda: None
    on_turn: Callable[[float], None] = lambda _: None
    reading: Reading | None = None
    listen: Listen = Listen()
    free_port: Callable[[], int] = free_port
    stops_on_signal: bool = True


class Controller:
    """One epoch of a run."""

    def __init__(self, parts: Parts) -> None:
        """Raises LeaseHeldError, JournalDamagedError, OSError."""
        self.parts = parts
        run, clock = parts.run, parts.clock
        self._lease = Lease(run.path("lease"), clock())
        self.journal, self._before = Journal.begin(run.journal, clock, os.uname().nodename, os.getpid())
        self._lease.renew(clock(), self.journal.epoch)
        self._workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="relight")
        self.lanes = Lanes()
        self._reading: dict[str, Future[None]] = {}
        self._again: set[str] = set()
        self._closing = False
        self._broken: BaseException | None = None

    async def run(self, stop_asked: str = "", *, again: bool = False) -> int:
        """Supervise until the run ends or halts; the exit code of `relight run`. Raises UserError where no store can be.

        `stop_asked`: who asked for a planned stop before this epoch began; empty when nobody has. `again`: it follows a
        controller that died, and nobody has started the run anew.
        """
        self._events = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        parts, run = self.parts, self.parts.run
        files = RunFiles(run)
        reads = parts.reading.crew if parts.reading else None
        hub = Hub(run.root, run.token(), parts.clock, self._wake.set, BEAT_S, parts.rules.node.silent_s, reads)
        self.world = World(
            parts.cluster,
            parts.store,
            hub,
            files,
            parts.settings.shape(),
            parts.archive,
            parts.moves.shown,
            parts.drilled,
        )
        self._desk = FileDesk(run, parts.settings, lambda: self.look_again("notices"))
        self.loop = Loop(self._scene(hub, files), fold_all(History(), self._before), parts.clock(), again=again)
        self.loop.stop_asked_by = stop_asked or None
        for number in (signal.SIGTERM, signal.SIGINT) if parts.stops_on_signal else ():
            self._events.add_signal_handler(number, self._ask_stop, number.name)
        run.write_endpoint(parts.listen.tell, await hub.start(parts.listen.bind), self.journal.epoch)
        if self.journal.epoch == 1:
            self._make_store()  # one that can't be made is told at once; one that is away later is waited for
            await asyncio.to_thread(self._make_archive)
        parts.cluster.on_change(lambda: self.look_again("cluster"))
        for part in ("cluster", "store", "archive"):
            self._read(part)
        work = (
            self._turns(),
            self._every(CLUSTER_S, "cluster"),
            self._every(STORE_S, "store"),
            self._every(ARCHIVE_S, "archive"),
            self._requests(),
            self._renew(),
        )
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()  # all but the turns only end by an exception, which ends this process
        finally:
            self._closing = True
            for task in tasks:
                task.cancel()
            self._desk.close()
            await hub.close()
            files.close()
            if parts.reading is not None:
                parts.reading.end()  # hours of it, perhaps; the next controller begins anew
            await asyncio.to_thread(self._workers.shutdown)
            self.journal.close()

    def _make_store(self) -> None:
        """Raises UserError."""
        try:
            self.parts.store.create()
        except OSError as error:
            root = self.parts.settings.checkpoints.dir or self.parts.run.path("checkpoints")
            raise UserError(f"{root}: the checkpoint store can't be made: {error.strerror}") from None

    def _make_archive(self) -> None:
        """Raises UserError."""
        archive = self.parts.archive
        if archive is not None:
            try:
                archive.make(fresh=True)
            except OSError as error:
                place = self.parts.settings.archive.place
                raise UserError(f"{place}: the archive can't be made: {error.strerror or error}") from None

    def _scene(self, hub: Hub, files: RunFiles) -> Scene:
        parts = self.parts
        layout = parts.settings.shape()
        capture_s = parts.rules.evidence.capture_s
        ports = Ports(
            parts.run,
            parts.settings,
            layout,
            parts.cluster,
            parts.store,
            hub,
            files,
            self.journal.epoch,
            capture_s,
            parts.free_port,
            archive=parts.archive or NoArchive(),
        )
        effects = Effects(ports, self._workers, self.look_again, self.lanes)
        if parts.wrap_effects:
            effects = parts.wrap_effects(effects)
        return Scene(
            run=parts.settings.run.name,
            layout=layout,
            rules=parts.rules,
            journal=self.journal,
            world=self.world,
            effects=effects,
            agents=hub,
            files=files,
            desk=self._desk,
            look_again=self._read,
            lag_s=parts.lag_s,
            on_view=parts.reading.follow if parts.reading else lambda *_: None,
        )

    def _ask_stop(self, signal_name: str) -> None:
        """The ranks are asked to save and end; a signal is a person's wish, or the end of the allocation, and no fault."""
        self.loop.stop_asked_by = signal_name
        self._wake.set()

    # --- waking ----------------------------------------------------------------------------------------------------

    def look_again(self, part: str) -> None:
        """Read a part of the world again and wake; from any thread."""
        self._events.call_soon_threadsafe(self._read, part)

    def _read(self, part: str) -> None:
        """Start a read in a thread. While one is under way, there is one more afterwards."""
        none = part == "archive" and not self.world.has_archive
        if part not in {"cluster", "store", "archive"} or none or self._closing:
            self._wake.set()
            return
        if part in self._reading:
            self._again.add(part)
            return
        now = self.parts.clock()
        if part == "cluster":
            job = self._workers.submit(self.world.refresh_cluster, now)
        elif part == "archive":
            self.world.ask_archive(now)
            job = self.lanes.submit(self.world.refresh_archive, now)
        else:
            attempt = self.loop.history.attempt
            job = self._workers.submit(self.world.refresh_store, now, attempt.checkpoint if attempt else None)
        self._reading[part] = job
        job.add_done_callback(lambda _: self._events.call_soon_threadsafe(self._have_read, part))

    def _have_read(self, part: str) -> None:
        error = self._reading.pop(part).exception()
        if error is not None:
            self._broken = error
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

    async def _turns(self) -> int:
        while True:
            self._wake.clear()
            if self._broken is not None:
                raise self._broken  # not understood, so not gone on from: the parent starts a new epoch
            now, began = self.parts.clock(), time.perf_counter()
            turn = self.loop.turn(now)
            self.parts.on_turn(time.perf_counter() - began)
            if turn.code is not None:
                return turn.code
            if turn.again:
                await asyncio.sleep(0)  # what has come meanwhile is heard first
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.005, turn.next_look - self.parts.clock())):
                    await self._wake.wait()
