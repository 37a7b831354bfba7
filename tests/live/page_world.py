"""A run to look at: the product's own controller in the simulated world, on a real run directory, in real time.

The past is told fast, up to this moment; from here on the world goes with the wall clock. Requests that a console files
in the run directory are judged by the controller as always.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from policies.decisions import Decision
from policies.facts import StepRow, View
from policies.history import History
from policies.layout import Layout
from supervisor.attempt_files import RunFiles
from supervisor.bench.simulate import quiet
from supervisor.bench.world.cluster import Delays
from supervisor.bench.world.desk import SimDesk
from supervisor.bench.world.given import Given, profile
from supervisor.bench.world.job import Job
from supervisor.bench.world.world import Plant, SimWorld, Watch
from supervisor.desk import FileDesk
from supervisor.gate import Held
from supervisor.journal import requests
from supervisor.journal.journal import FolderSegments
from supervisor.journal.lease import Lease
from supervisor.journal.requests import Request
from supervisor.ports import Desk
from supervisor.rundir import RunDir
from supervisor.settings import freeze

SMALL = Layout(1, 2, 4, 1)
LARGE = Layout(8, 8, 80, 8)
LEASE_S = 5.0


class ShownDesk(FileDesk):
    """The run directory as desk. While the past is told fast, nobody looks: status.json waits for the end of that."""

    live = False

    def status(self, view: View, decision: Decision, held: Held | None, now: float) -> None:
        """status.json."""
        if self.live:
            super().status(view, decision, held, now)


class Shown(Plant):
    """The controller gets the run directory as its desk."""

    def __init__(self, desk: ShownDesk) -> None:
        self.page_desk = desk

    def desk(self, desk: SimDesk) -> Desk:  # noqa: ARG002 - the port's signature
        """In the place of the simulated one."""
        return self.page_desk


@dataclass(frozen=True)
class Told:
    """What the run is like: seconds of past, and what happens in them (seconds from the start, what)."""

    name: str = "llm7b"
    layout: Layout = SMALL
    spares: int = 2
    past_s: float = 1200.0
    events: tuple[tuple[float, Callable[[LiveRun], object]], ...] = ()
    saves_at: tuple[float, ...] = (300.0, 600.0, 900.0)
    mode: str = "approve"
    step_s: float = 1.0


class LiveRun:
    """A run whose journal goes on while it is looked at."""

    def __init__(self, root: Path, told: Told) -> None:
        quiet()
        self.run = RunDir(str(root / told.name))
        self.run.create()
        start = time.time() - told.past_s
        job = Job(
            step_s=told.step_s,
            batch=10_240,
            saves_at=tuple(start + at for at in told.saves_at),
            start_s=0.5,
            load_s=0.5,
            first_step_s=0.5,
            write_s=20,
        )
        rules = profile("auto").model_copy(update={"mode": told.mode})
        quick = Delays(silent_s=0.5, down_s=1.5)  # a test waits for them in real time
        given = Given(layout=told.layout, spares=told.spares, job=job, rules=rules, delays=quick, lag_s=1.0)
        settings = given.settings
        settings = settings.model_copy(
            update={"run": settings.run.model_copy(update={"name": told.name, "tokens_per_sample": 4096})}
        )
        freeze(self.run.root, settings)
        self.desk = ShownDesk(self.run, settings)
        self.world = SimWorld(given, 1, watch=Watch(), plant=Shown(self.desk))
        self.world.time.now = start
        self.world.disk = FolderSegments(self.run.journal)
        self._lease = Lease(self.run.path("lease"), time.time())
        self._rows, rows = RunFiles(self.run), self.world.files.write_rows

        def write_rows(new: list[StepRow]) -> None:
            rows(new)
            self._rows.write_rows(new)

        self.world.files.write_rows = write_rows
        for at, do in told.events:
            self.world.time.at(start + at, lambda do=do: do(self))
        self.world.begin()
        self.world.run_until(time.time() - 1)
        self.desk.live = True
        self._moves: queue.SimpleQueue[Callable[[SimWorld], None]] = queue.SimpleQueue()
        self._over = threading.Event()
        self.broken: Exception | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)

    @property
    def history(self) -> History:
        return self.world.history

    def do(self, move: Callable[[SimWorld], None]) -> None:
        """Let something happen in the world, soon."""
        self._moves.put(move)

    def approve(self) -> None:
        """Somebody approves the open plan, as the command line does."""
        life = self.world.life
        assert life is not None
        now, digest = self.world.time.now, life.loop.history.decision_digest
        assert digest is not None
        request = Request(requests.new_id(now), "approve", "zhang.min@login1", now, digest=digest)
        requests.file(self.run.root, request)
        life.wake()

    def leave(self) -> None:
        """The controller is gone, and so is its lease."""
        self.__exit__()
        Path(self.run.path("lease")).unlink()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        self._rows.close()
        if self.broken is not None:
            raise self.broken

    def _live(self) -> None:
        try:
            renewed = 0.0
            while not self._over.wait(0.05):
                while not self._moves.empty():
                    self._moves.get()(self.world)
                life = self.world.life
                if life is not None and (self.desk.pending() or time.time() > self.woken_at + 0.5):
                    self.woken_at = time.time()
                    life.wake()
                self.world.run_until(time.time())
                if time.time() > renewed + LEASE_S:
                    renewed = time.time()
                    self._lease.renew(renewed, life.epoch if life else 1)
        except Exception as error:  # noqa: BLE001 - told at the end, by the thread of the test
            self.broken = error

    woken_at = 0.0
