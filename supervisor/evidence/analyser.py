"""NVRx's analyser of flight-recorder dumps, as a process of its own: it unpickles, so whatever is in a dump is run there.

It is started only when a person asks for it. A limit on memory, on output and on time holds for it; it is no sandbox.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from supervisor.evidence.traces import Missing, prefix_of

MODULE: Final = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
OUTPUT_BYTES: Final = 1 << 20
SETS: Final = 8
"""Folders and prefixes with dumps that are looked at."""

_LIMITED: Final = (
    "import os, resource, sys\n"
    "memory, output = int(sys.argv[1]), int(sys.argv[2])\n"
    "resource.setrlimit(resource.RLIMIT_AS, (memory, memory))\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))\n"
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)


class AnalyserError(Exception):
    """It gave no answer; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class Analyser:
    """How it is called: `command --fr-path DIR --pattern PATTERN --emit-stdout`."""

    command: tuple[str, ...]
    deadline_s: float = 60.0
    memory_bytes: int = 8 << 30  # of address space; torch, which it may import, maps several GB that it never touches

    def missing(self, folder: str, names: Sequence[str]) -> list[Missing]:
        """Who is missing by its tables, one for each folder and prefix. `names` are relative to `folder`. Raises AnalyserError."""
        sets: dict[tuple[str, str], list[str]] = {}
        for name in names:
            sets.setdefault((os.path.dirname(name), prefix_of(name)), []).append(name)
        found = []
        for (under, prefix), dumps in list(sets.items())[:SETS]:
            told = self._run(os.path.normpath(os.path.join(os.path.abspath(folder), under)), f"{prefix}*")
            ranks = missing_ranks(told)
            if ranks:
                found.append(Missing(ranks, len(dumps) - len(ranks), "a collective", dumps[0]))
        return found

    def _run(self, folder: str, pattern: str) -> str:
        limits = (sys.executable, "-I", "-c", _LIMITED, str(self.memory_bytes), str(OUTPUT_BYTES))
        asked = ("--fr-path", folder, "--pattern", pattern, "--emit-stdout")
        with tempfile.TemporaryDirectory(prefix="relight-traces-") as work, tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                [*limits, *self.command, *asked],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd=work,
                env={"PATH": os.defpath, "HOME": work, "TMPDIR": work},
                start_new_session=True,
            )
            try:
                code = child.wait(self.deadline_s)
            except subprocess.TimeoutExpired:
                raise AnalyserError(f"no answer within {self.deadline_s:.0f} s") from None
            finally:
                with suppress(ProcessLookupError):  # what it has started goes with it
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            output.seek(0)
            text = output.read(OUTPUT_BYTES).decode("utf-8", "replace")
        if code != 0:
            raise AnalyserError(f"it ended with exit code {code}")
        return text


def missing_ranks(text: str) -> tuple[int, ...]:
    """The last column of its table `PGID | ... | Missing Ranks`, of all rows."""
    ranks: set[int] = set()
    table = False
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if columns[-1] == "Missing Ranks":
            table = True
        elif table and len(columns) >= 6:
            ranks.update(int(part) for part in columns[-1].split(",") if part.strip().isdigit() and len(part) < 8)
    return tuple(sorted(ranks))


def find() -> Analyser | None:
    """The analyser of this environment, or of the one that `make setup` puts beside it; None: NVRx is not there."""
    if importlib.util.find_spec("nvidia_resiliency_ext") is not None:
        return Analyser((sys.executable, "-m", MODULE))
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.prefix)), ".venv-nvrx")
    if os.path.exists(os.path.join(beside, ".installed")):
        return Analyser((os.path.join(beside, "bin", "python"), "-m", MODULE))
    return None
