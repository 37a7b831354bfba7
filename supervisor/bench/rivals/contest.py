"""One contest: start the job under a rival, kill a rank, and see when the ranks begin again and when they step again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from slurm import processes
from supervisor.bench.nodes import shim_pid
from supervisor.bench.real_run import POLL_S, RealRun, Shape, trainer_options
from supervisor.errors import UserError

SAVE_EVERY = 10
KILL_AFTER = 13
"""The rank dies once this step is done: the save of step 10 is whole by then, and three steps are lost."""
VICTIM = 3
_MARKS = "RELIGHT_BENCH_MARKS"


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of `marked.py`. `at` is monotonic seconds; `step` None is the first statement of a rank."""

    at: float
    rank: int
    pid: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds from the death of the rank. `stages`: where relight's own time went, by its incident's clock."""

    first_statement: float
    all_begun: float
    next_step: float
    new_step: float
    stages: dict[str, float] = field(default_factory=dict)


class Rival(Protocol):
    """Somebody who keeps the job running."""

    name: str

    def start(self, folder: str, marks: str) -> None:
        """Start the job in `folder`; its ranks mark in `marks`."""
        ...

    def saved(self) -> bool:
        """Would the job go on from the save of step `SAVE_EVERY` now?"""
        ...

    def ended(self) -> bool:
        """Has it given the job up?"""
        ...

    def look_back(self, died: float, sample: Sample) -> Sample:
        """What the rival itself knows of the recovery. `died`: wall seconds. Raises UserError when it was another one."""
        ...

    def stop(self) -> None:
        """End the job and its keeper."""
        ...


def shape(*, warm: bool = False) -> Shape:
    """TP2 x PP2 x DP2 on 4 nodes of 2 ranks; the steps go on for longer than any contest."""
    return Shape(
        spares=0, steps=100_000, save_every=SAVE_EVERY, warm=warm, extra=("--step-seconds", "0.1"), script=_marked()
    )


def _marked() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "marked.py")


class Relight:
    """The product, as `relight run` starts it."""

    def __init__(self, *, warm: bool) -> None:
        self.name = "relight, warm ranks" if warm else "relight"
        self._warm = warm
        self._run: RealRun | None = None

    @property
    def run(self) -> RealRun:
        """The run, once it is started."""
        assert self._run is not None  # noqa: S101 - start() comes first
        return self._run

    def start(self, folder: str, marks: str) -> None:
        """As the protocol says."""
        self._run = RealRun(folder, shape(warm=self._warm), env={_MARKS: marks})
        self.run.start()

    def saved(self) -> bool:
        """The save is sealed; warm processes are ready to fork."""
        with suppress(OSError), open(self.run.run.path("checkpoints", "latest"), encoding="ascii") as file:
            return file.read(100).strip() == f"a0001-i{SAVE_EVERY:07d}" and self._warm_ready()
        return False

    def ended(self) -> bool:
        """As the protocol says."""
        return self.run.process is None or self.run.process.poll() is not None

    def _warm_ready(self) -> bool:
        from slurm import sockets  # noqa: PLC0415 - only a warm run has them

        folder = sockets.make_socket_dir(self.run.run.root)
        return not self._warm or all(os.path.exists(sockets.warm_socket(folder, n)) for n in self.run.slots(1))

    def look_back(self, died: float, sample: Sample) -> Sample:
        """The incident's own clock, and the proof that the ranks were started as this rival says."""
        root = self.run.run.root
        parent = processes.look(_pid(root, VICTIM))
        if parent is not None and self._warm == (parent.parent == shim_pid(root, 2, VICTIM)):
            raise UserError(f"{self.name}: rank {VICTIM} was started the other way: {root}", 1)
        times = self.run.wait_closed(1).times
        named = ("detected", "confirmed", "evidence", "stopped", "decided", "relaunched")
        at = [(name, moment) for name in named if (moment := getattr(times, name)) is not None]
        stages = {name: moment - died for name, moment in sorted(at, key=lambda one: one[1])}
        return replace(sample, stages=stages)

    def stop(self) -> None:
        """As the protocol says."""
        if self._run is not None:
            self._run.stop()


def _pid(root: str, rank: int) -> int:
    with open(os.path.join(root, "attempts", "0002", "pids", f"rank_{rank:05d}.json"), "rb") as file:
        return int(json.load(file)["pid"])


class Keeper:
    """A rival that is one process which starts the ranks itself; the trainer notes its newest save on its own."""

    def __init__(self, name: str, command: Callable[[str], list[str]], env: dict[str, str] | None = None) -> None:
        """`command(folder)`: what starts `marked.py`; the trainer's arguments follow."""
        self.name = name
        self._command = command
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._saves = ""

    def start(self, folder: str, marks: str) -> None:
        """As the protocol says."""
        self._saves = os.path.join(folder, "saves")
        os.makedirs(self._saves)
        command = [*self._command(folder), *trainer_options(shape()), "--tracker"]
        with open(os.path.join(folder, "keeper.log"), "ab") as log:
            self._process = subprocess.Popen(
                [*command, "--save", self._saves, "--load", self._saves],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=os.environ | {_MARKS: marks} | self._env,
            )

    def saved(self) -> bool:
        """The tracker names the save."""
        with suppress(OSError), open(f"{self._saves}/latest_checkpointed_iteration.txt", encoding="ascii") as file:
            return file.read(20).strip() == str(SAVE_EVERY)
        return False

    def ended(self) -> bool:
        """As the protocol says."""
        return self._process is None or self._process.poll() is not None

    def look_back(self, died: float, sample: Sample) -> Sample:
        """It keeps no record."""
        del died
        return sample

    def stop(self) -> None:
        """Kill the keeper; its ranks are ended by whoever holds the marks."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def bare() -> Keeper:
    """Kill and restart, and nothing else."""

    def command(folder: str) -> list[str]:
        driver = [sys.executable, "-m", "supervisor.bench.rivals.bare", str(shape().world), folder, "--"]
        return [*driver, sys.executable, "-u", _marked()]

    return Keeper("bare restart", command)


def torchrun() -> Keeper:
    """Torch's own launcher: one for all ranks, which is its quickest form. Its store is not shared between restarts.

    With the shared store (its default in torch 2.13) gloo reads the addresses of the dead and often never comes back.
    """

    def command(folder: str) -> list[str]:
        del folder
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            endpoint = f"localhost:{one.getsockname()[1]}"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--max-restarts", "3"]
        launcher += ["--nproc-per-node", str(shape().world), "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
        return [*launcher, _marked()]

    return Keeper("torchrun", command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"})


def read_marks(path: str) -> list[Mark]:
    """All whole marks so far."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [Mark(float(m["t"]), int(m["rank"]), int(m["pid"]), m["step"]) for m in map(json.loads, lines)]


def measure(marks: list[Mark], died: float, world: int) -> Sample | None:
    """The times after a death at `died` (monotonic); None while the steps have not passed the old frontier.

    Raises UserError when the ranks did not go on from the save that all rivals are to go on from.
    """
    frontier = max((m.step for m in marks if m.at <= died and m.step is not None), default=0)
    old = {m.pid for m in marks if m.at <= died}
    later = [m for m in marks if m.pid not in old]
    begun = {m.rank: m.at for m in reversed(later) if m.step is None}  # the first of each rank
    steps = [m for m in later if m.step is not None]
    new = [m.at for m in steps if m.step is not None and m.step > frontier]
    if len(begun) < world or not new:
        return None
    if steps[0].step != SAVE_EVERY + 1:
        raise UserError(f"the first step after the restart is {steps[0].step}, not {SAVE_EVERY + 1}", 1)
    return Sample(
        first_statement=min(begun.values()) - died,
        all_begun=max(begun.values()) - died,
        next_step=steps[0].at - died,
        new_step=min(new) - died,
    )


def contest(rival: Rival, folder: str, limit_s: float = 180.0) -> Sample:
    """Run one contest in `folder`, which must not be there. Raises UserError when it does not come back in time."""
    os.makedirs(folder)
    path = os.path.join(os.path.abspath(folder), "marks.jsonl")
    until = time.monotonic() + limit_s
    world = shape().world
    try:
        rival.start(os.path.abspath(folder), path)

        def done() -> int:
            return max((m.step for m in read_marks(path) if m.step is not None), default=0)

        def wait(look: Callable[[], bool], what: str) -> None:
            while not look():
                if rival.ended() or time.monotonic() > until:
                    raise UserError(f"{rival.name}: {what} was not seen; see {folder}", 1)
                time.sleep(POLL_S)

        wait(lambda: done() >= KILL_AFTER and rival.saved(), f"step {KILL_AFTER}")
        victim = next(m.pid for m in read_marks(path) if m.rank == VICTIM)
        died, wall = time.monotonic(), time.time()
        os.kill(victim, signal.SIGKILL)

        def back() -> Sample | None:
            return measure(read_marks(path), died, world)

        wait(lambda: back() is not None, "a new step")
        sample = back()
        assert sample is not None  # noqa: S101 - seen just now
        return rival.look_back(wall, sample)
    finally:
        rival.stop()
        _end_ranks(path)


def _end_ranks(marks: str) -> None:
    """Kill what still runs of the ranks that have marked here, and see it gone: the next contest wants a quiet machine."""
    ours = {m.pid for m in read_marks(marks)}
    left = [pid for pid in ours if processes.holds(pid, {_MARKS: marks})]
    processes.send(left, signal.SIGKILL)
    processes.wait_gone(left, 10.0)


def clear(folder: str) -> None:
    """Take what the contests have left away."""
    shutil.rmtree(folder, ignore_errors=True)
