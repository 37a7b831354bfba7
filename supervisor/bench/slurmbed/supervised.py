"""One supervised run of the reference trainer on the test cluster: submitted as a user would, hurt, and read afterwards."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from policies.history import History, Incident
from supervisor.bench.real_run import Shape, trainer_options, trainer_script, weights_of
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.errors import UserError
from supervisor.fold import fold_all
from supervisor.journal import journal
from supervisor.rundir import RunDir
from supervisor.step_rows import read_rows

T = TypeVar("T")
LOOK_S: Final = 0.1
"""Neither Slurm nor a run directory announces anything."""
OVER: Final = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", ""}
)


def new_folder() -> str:
    """A folder that the nodes' daemons can enter too, who are other users."""
    folder = tempfile.mkdtemp(prefix="relight-slurm-run-")
    os.chmod(folder, 0o755)  # noqa: S103 - for that
    return folder


def can_run(uid: int) -> bool:
    """Can this user run what we run? Our Python may lie where nobody else is let in."""
    words = [sys.executable, "-c", "import supervisor, torch"]
    env = os.environ | {"PYTHONPATH": _source()}
    try:
        done = subprocess.run(words, user=uid, group=uid, cwd="/", env=env, capture_output=True, check=False)
    except PermissionError:
        return False
    return done.returncode == 0


def _source() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


@dataclass
class SlurmRun:
    """A run in `folder`, which all nodes see. `env` and `uid`: of the user who submits it."""

    bed: SlurmBed
    folder: str
    shape: Shape
    env: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = (sys.executable, "-u")
    """What the trainer's own file is given to."""
    uid: int = 0
    job: str = ""

    @property
    def at(self) -> str:
        """The job that runs it now: the submitted one, or the last that followed it."""
        try:
            with open(self.run.path("job.json"), "rb") as file:
                return str(json.load(file)["job"])
        except FileNotFoundError:
            return self.job

    @property
    def run(self) -> RunDir:
        """The run directory."""
        return RunDir(os.path.join(self.folder, "relight-runs", "demo"))

    def submit(self, *words: str) -> str:
        """`relight sbatch`; the job's id. Raises UserError with what it said."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        one = self.shape
        nodes = one.world // one.ranks_per_node
        config, script = os.path.join(self.folder, "relight.toml"), os.path.join(self.folder, "job.sbatch")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f'[run]\nname = "demo"\nprofile = "{one.profile}"\nwarm = {str(one.warm).lower()}\n'
                f"[layout]\ntp = {one.tp}\npp = {one.pp}\ndp = {one.dp}\n"
                f"ranks_per_node = {one.ranks_per_node}\n{self.settings}"
            )
        train = shlex.join([*self.launcher, one.script or trainer_script(), *trainer_options(one)])
        lines = [f"#SBATCH --nodes={nodes} --gres=gpu:{self.bed.shape.gpus} --chdir={self.folder}"]
        lines += [f"#SBATCH --output={self.folder}/job.out", *(f"#SBATCH {option}" for option in self.options)]
        call = f"exec {shlex.quote(sys.executable)} -m supervisor run --config {config} -- {train}"
        with open(script, "w", encoding="utf-8") as file:
            file.write("\n".join(["#!/bin/sh", *lines, call]) + "\n")
        for path in (self.folder, config, script):
            os.chown(path, self.uid, self.uid)
        self.job = self._sbatch(*words, script)
        return self.job

    def resubmit(self) -> str:
        """The same script once more, by hand; the job's id."""
        job = self._sbatch(os.path.join(self.folder, "job.sbatch"))
        self.until(lambda: self.at == job, "the next job at work", 60)
        return job

    def jobs(self) -> list[str]:
        """Every job of the cluster: the run's, in order."""
        return sorted(set(self.bed.run("squeue", "-h", "-t", "all", "-o", "%A").split()), key=int)

    def _sbatch(self, *words: str) -> str:
        return self.relight("sbatch", "--spares", str(self.shape.spares), *words).split()[-1]

    def relight(self, *words: str) -> str:
        """`relight WORDS`, as the user types it; what it printed. Raises UserError with what it said instead."""
        told = subprocess.run(
            [sys.executable, "-m", "supervisor", *words],
            check=False,
            capture_output=True,
            text=True,
            env=self.environment(),
            cwd=self.folder,
            user=self.uid or None,
            group=self.uid or None,
        )
        if told.returncode:
            raise UserError(f"relight {words[0]}: {told.stderr.strip()}", 1)
        return told.stdout

    def watch(self) -> subprocess.Popen[bytes]:
        """`relight watch`, beside the cluster; whoever asks ends it."""
        with open(os.path.join(self.folder, "watch.out"), "ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "supervisor", "watch", self.run.root],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment(),
                cwd=self.folder,
                user=self.uid or None,
                group=self.uid or None,
            )

    def history(self) -> History:
        """What the journal says now."""
        if not os.path.isdir(self.run.journal):
            return History()
        return fold_all(History(), journal.read(self.run.journal))

    def wait_step(self, step: int, seconds: float = 120) -> int:
        """Until the newest attempt has done `step`; answers the attempt."""

        def look() -> int:
            attempt = self.history().attempt
            rows = read_rows(self.run, attempt.number) if attempt else ()
            return attempt.number if attempt and max((row.step for row in rows), default=0) >= step else 0

        return self.until(look, f"step {step}", seconds)

    def wait_closed(self, number: int, seconds: float = 120) -> Incident:
        """Until an incident is closed."""

        def look() -> Incident | None:
            return next((i for i in self.history().incidents if i.number == number and i.closed), None)

        found = self.until(look, f"incident {number} closed", seconds)
        assert found is not None  # noqa: S101 - until has seen it
        return found

    def wait_over(self, seconds: float = 240) -> str:
        """Until the run has finished, or its last job is over; the job's state.

        `COMPLETING` counts: a lost node keeps a job there for minutes. A run that has finished lets its nodes go slowly then, too.
        """

        def look() -> str:
            state, ended = self.bed.job_state(self.at), self.history().ended
            over = state in OVER or (state == "COMPLETING" and ended) or ended == "finished"
            return (state or "GONE") if over and ended != "next-job" else ""

        return self.until(look, "the end of the job", seconds)

    def wait_job(self, seconds: float = 60) -> str:
        """Until its last job is over for good; the job's state. One that has lost a node takes minutes."""

        def look() -> str:
            state = self.bed.job_state(self.at)
            return state if state in OVER else ""

        return self.until(look, "the end of the job", seconds)

    def until(self, look: Callable[[], T], what: str, seconds: float) -> T:
        """Look until there is something. Raises UserError with the last words of the job."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = look()
            if found:
                return found
            time.sleep(LOOK_S)
        raise UserError(f"{what}: not seen within {seconds:.0f} s; {self.last_words()}", 1)

    def last_words(self) -> str:
        """The end of what the controllers have said."""
        said = []
        for name in ("job.out", "watch.out"):
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    said += file.read().splitlines()[-6:]
            except FileNotFoundError:
                continue
        return " / ".join(said)

    def weights_hash(self) -> str:
        """The hash of the last save's weights. Raises UserError."""
        newest = self.history().completed[-1]
        attempt, step = newest[1:5], int(newest[7:])
        return weights_of(self.run.path("checkpoints", "saves", f"a{attempt}", f"iter_{step:07d}"))

    def slots(self) -> tuple[str, ...]:
        """Which node holds each slot of the newest attempt."""
        attempt = self.history().attempt
        return attempt.slots if attempt else ()

    def environment(self) -> dict[str, str]:
        """What commands of its user are given."""
        return {**os.environ, **(self.env or self.bed.env), "RELIGHT_LOG": "text", "PYTHONPATH": _source()}
