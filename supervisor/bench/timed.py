"""One command, alone: what it printed, how long it took, how much of a core and how much memory."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CPU_LIMIT_S: Final = 900
"""Seconds of a core after which a command is ended by the kernel: a rival that never ends must not hold up the bench."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of CPU (its own and its children's) and on the clock, peak memory in MB, standard output, exit code."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str
    code: int
    last_words: str
    """The last line of standard error."""


def timed(command: Sequence[str], cpu_limit_s: int = CPU_LIMIT_S) -> Timed:
    """Run it to its end. Raises OSError when it can't be started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s))
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)  # so that Popen waits for nobody
        out.seek(0)
        err.seek(0)
        words = err.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
        return Timed(
            cpu_s=used.ru_utime + used.ru_stime,
            wall_s=wall_s,
            peak_mb=used.ru_maxrss / 1024,
            output=out.read().decode("utf-8", "replace"),
            code=child.returncode,
            last_words=words[-1] if words else "",
        )
