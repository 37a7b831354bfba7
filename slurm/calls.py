"""One command, with a deadline: what is late is killed with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_MPI_TYPE"})
_TOUCHED: Final = ("SLURM", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SRUN_", "SALLOC_", "SBATCH_", "PMI")
_PLACE: Final = ("RELIGHT_PROCID", "RELIGHT_NODE")
"""Of a task, not of a command: whoever asks may itself be one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended. `code` is None when it was late and killed."""

    code: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """Did it end with 0?"""
        return self.code == 0

    def why(self, command: str) -> str:
        """One line for people: which command, and what it said last."""
        if self.code is None:
            return f"{command} did not answer in time"
        said = [line.strip() for line in self.err.splitlines() if line.strip()]
        return f"{command} ended with {self.code}: {said[-1][:300] if said else 'no word'}"


def clean_environment(outer: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands: what would change their output or a step's shape is left out.

    Inside a job `SLURM_NNODES`, `SLURM_NTASKS_PER_NODE`, `SQUEUE_FORMAT` and their like are options that nobody asked for.
    """
    return {k: v for k, v in outer.items() if k in _KEPT or not (k.startswith(_TOUCHED) or k in _PLACE)}


def call(argv: Sequence[str], deadline_s: float, env: Mapping[str, str], cwd: str | None = None) -> Answer:
    """Run a command and wait for it, `deadline_s` at most. One that can't even be started has failed like any other: code 127.

    It speaks English and UTC, whatever the language and zone of who asks.
    """
    return hand_on(argv, deadline_s, {**env, "LC_ALL": "C", "TZ": "UTC"}, cwd)


def hand_on(argv: Sequence[str], deadline_s: float, env: Mapping[str, str], cwd: str | None = None) -> Answer:
    """The same with this environment as it is: for a command that hands it on to what it starts."""
    try:
        return _ran(argv, deadline_s, env, cwd)
    except OSError as error:
        return Answer(127, "", str(error))


def _ran(argv: Sequence[str], deadline_s: float, env: Mapping[str, str], cwd: str | None) -> Answer:
    until = time.monotonic() + deadline_s
    with subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):  # it ended in this very moment; it was late all the same
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return Answer(None, out.decode(errors="replace"), err.decode(errors="replace"))
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return Answer(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
