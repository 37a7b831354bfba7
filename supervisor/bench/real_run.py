"""One real run of the reference trainer under relight: start it, watch it, hurt it, read what it left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from policies.history import History, Incident
from policies.layout import Layout
from supervisor.errors import UserError
from supervisor.fold import fold_all
from supervisor.journal import journal
from supervisor.journal.lease import read_holder
from supervisor.rundir import RunDir
from supervisor.step_rows import read_rows

T = TypeVar("T")
POLL_S = 0.01
"""How often the bench looks at the files of a run; relight itself is not asked, so that the bench does not disturb it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Layout, spares and training of a bench run."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    ranks_per_node: int = 2
    spares: int = 2
    steps: int = 60
    save_every: int = 10
    asynchronous: bool = True
    warm: bool = False
    profile: str = "bench"
    extra: tuple[str, ...] = ()
    script: str = ""
    """What is run in place of the trainer's own file, with the same arguments."""

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.tp * self.pp * self.dp


def trainer_script() -> str:
    """The path of the reference trainer."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer", "__main__.py")


def trainer_command(shape: Shape) -> list[str]:
    """The command of one rank."""
    return [sys.executable, "-u", shape.script or trainer_script(), *trainer_options(shape)]


def trainer_options(shape: Shape) -> list[str]:
    """The trainer's arguments, the same for every rank."""
    command = ["--tp", str(shape.tp), "--pp", str(shape.pp), "--dp", str(shape.dp)]
    command += ["--steps", str(shape.steps), "--save-every", str(shape.save_every)]
    return [*command, *(("--async-save",) if shape.asynchronous else ()), *shape.extra]


def weights_of(save: str) -> str:
    """The hash of the merged logical tensors of one save, by the separate tool. Raises UserError."""
    told = subprocess.run(
        [sys.executable, "-m", "supervisor.bench.weights", save], check=False, capture_output=True, text=True
    )
    if told.returncode != 0:
        raise UserError(f"the weights of {save} can't be read: {told.stderr.strip()[-300:]}", 1)
    return told.stdout.split()[0]


@dataclass
class RealRun:
    """A run in `folder`. `crash`: kill the controller once at this point (`supervisor.bench.crashing`).

    `settings`: more sections of relight.toml. `command`: what is trained, instead of the reference trainer.
    """

    folder: str
    shape: Shape
    crash: tuple[str, str, int] | None = None
    env: dict[str, str] = field(default_factory=dict)
    settings: str = ""
    command: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> RunDir:
        """The run directory."""
        return RunDir(os.path.join(os.path.abspath(self.folder), "run"))

    def shape_layout(self) -> Layout:
        """The layout of the run."""
        return Layout(self.shape.tp, self.shape.pp, self.shape.dp, self.shape.ranks_per_node)

    def start(self) -> None:
        """Start `relight run` anew; its log goes to `relight.log`."""
        os.makedirs(self.folder, exist_ok=True)
        config = os.path.join(os.path.abspath(self.folder), "relight.toml")
        one = self.shape
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f'[run]\nname = "bench"\nprofile = "{one.profile}"\nwarm = {str(one.warm).lower()}\n'
                f"[layout]\ntp = {one.tp}\npp = {one.pp}\ndp = {one.dp}\nranks_per_node = {one.ranks_per_node}\n"
                f"[cluster]\nspares = {one.spares}\n{self.settings}"
            )
        command = self.command or trainer_command(one)
        if self.crash:
            when, kind, number = self.crash
            argv = [sys.executable, "-m", "supervisor.bench.crashing", when, kind, str(number), config, self.run.root]
        else:
            argv = [sys.executable, "-m", "supervisor", "run", "--config", config, "--run-dir", self.run.root]
        with open(os.path.join(self.folder, "relight.log"), "ab") as log:
            self.process = subprocess.Popen(
                [*argv, "--", *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"RELIGHT_LOG": "text"} | self.env,
                cwd=self.folder,
            )

    def wait_for(self, what: str, look: Callable[[], T | None], seconds: float = 120) -> T:
        """Look until there is an answer. Raises UserError when relight ends first, or the time is up."""
        until = time.monotonic() + seconds
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if self.process is not None and self.process.poll() is not None:
                found = look()
                if found is not None and found is not False:
                    return found
                raise UserError(f"relight ended with {self.process.returncode} before {what}: {self.folder}", 1)
            if time.monotonic() > until:
                raise UserError(f"{what}: not seen within {seconds:.0f} s: {self.folder}", 1)
            time.sleep(POLL_S)

    def history(self) -> History:
        """What the journal says now."""
        if not os.path.isdir(self.run.journal):
            return History()
        return fold_all(History(), journal.read(self.run.journal))

    def attempt(self) -> int:
        """The number of the newest attempt that has a map; 0 for none."""
        folder = self.run.path("attempts")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        found = [int(n) for n in names if os.path.exists(self.run.attempt(int(n), "launch.json"))]
        return max(found, default=0)

    def slots(self, attempt: int) -> list[str]:
        """Which node holds each slot of an attempt."""
        with open(self.run.attempt(attempt, "launch.json"), encoding="utf-8") as file:
            return list(json.load(file)["slots"])

    def frontier(self) -> int:
        """The last step in the newest attempt's rows."""
        return max((row.step for row in read_rows(self.run, self.attempt())), default=0) if self.attempt() else 0

    def wait_step(self, step: int, attempt: int = 1, seconds: float = 120) -> int:
        """Wait until attempt `attempt` or a later one has done `step`; answers the attempt."""

        def look() -> int | None:
            newest = self.attempt()
            return newest if newest >= attempt and self.frontier() >= step else None

        return self.wait_for(f"step {step} of attempt {attempt}", look, seconds)

    def wait_closed(self, number: int, seconds: float = 120) -> Incident:
        """Wait until incident `number` is closed."""

        def look() -> Incident | None:
            return next((i for i in self.history().incidents if i.number == number and i.closed), None)

        return self.wait_for(f"incident {number} closed", look, seconds)

    def controller_pid(self) -> int:
        """The pid of the living controller. Raises UserError."""
        holder = read_holder(self.run.path("lease"))
        if holder is None:
            raise UserError(f"{self.run.root}: no controller holds the lease", 1)
        return holder.pid

    def wait_end(self, seconds: float = 300) -> int:
        """Wait for the end of `relight run`; its exit code."""
        assert self.process is not None  # noqa: S101 - started before
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise UserError(f"relight run has not ended within {seconds:.0f} s: {self.folder}", 1) from None

    def last_save(self) -> str:
        """The folder of the last sealed save. Raises UserError."""
        try:
            with open(self.run.path("checkpoints", "latest"), encoding="ascii") as file:
                name = file.read(100).strip()
        except OSError:
            raise UserError(f"{self.run.root}: no save was sealed", 1) from None
        attempt, step = name.split("-")
        return self.run.path("checkpoints", "saves", attempt, f"iter_{step[1:]}")

    def weights_hash(self) -> str:
        """The hash of the merged logical tensors of the last sealed save, by the separate tool."""
        return weights_of(self.last_save())

    def stop(self) -> None:
        """End everything of this run, by pid: the parent, the controller, the nodes."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        from slurm.local import LocalCluster  # noqa: PLC0415 - only where something is left to end

        holder = read_holder(self.run.path("lease"))
        if holder is not None and os.path.exists(f"/proc/{holder.pid}"):
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        nodes = self.run.path("nodes")
        listed = sorted(os.listdir(nodes)) if os.path.isdir(nodes) else []
        names = tuple(n for n in listed if os.path.exists(os.path.join(nodes, n, "node.json")))
        if names:
            LocalCluster(self.run.root, names).release(1 << 30)

    def clear(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)
