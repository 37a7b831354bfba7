"""Is the node short of memory? From /proc/meminfo and /proc/pressure/memory; both answer at once."""

from __future__ import annotations

import re
from typing import Final

from supervisor.agent.health.results import Verdict, healthy, unhealthy, unknown

AVAILABLE: Final = 0.02
"""Share of the memory that must be available. Our own choice: on a node of 2 TB it is 40 GB, a few workers' worth."""

STALLED: Final = 40.0
"""Per cent of the last minute in which nothing could run for want of memory. systemd-oomd kills at 60 by default."""

_TOTAL: Final = re.compile(r"^MemTotal:\s+(\d{1,15}) kB", re.MULTILINE)
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d{1,15}) kB", re.MULTILINE)
_FULL: Final = re.compile(r"^full .*\bavg60=(\d{1,3}\.\d+)", re.MULTILINE)


def judge(meminfo: str, pressure: str) -> Verdict:
    """What the two files say. A kernel without pressure figures is judged by what is available, and that is said."""
    total, available, full = _TOTAL.search(meminfo), _AVAILABLE.search(meminfo), _FULL.search(pressure)
    if total is None or available is None or int(total[1]) == 0:
        return unknown("/proc/meminfo does not say what is available")
    share = int(available[1]) / int(total[1])
    if share < AVAILABLE:
        return unhealthy("memory-short", f"{int(available[1]) / 1e6:.2f} GB ({share:.1%}) of the memory are available")
    if full is None:
        return healthy(f"{share:.0%} of the memory are available; this kernel tells no pressure")
    if float(full[1]) >= STALLED:
        return unhealthy("memory-pressure", f"all work stood still for want of memory in {full[1]} % of a minute")
    return healthy(f"{share:.0%} of the memory are available, pressure {full[1]} %")


class Memory:
    """The check. `proc` is where the two files lie."""

    names = ("memory",)

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        return {"memory": judge(_read(f"{self._proc}/meminfo"), _read(f"{self._proc}/pressure/memory"))}


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(16384)
    except OSError:  # EOPNOTSUPP where pressure is switched off
        return ""
