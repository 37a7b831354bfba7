"""The checks of NVIDIA's resiliency extension (0.7.0), out of process: its package alone takes 0.2 s and 28 MB to import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from supervisor.agent.health.child import Child, Ran
from supervisor.agent.health.results import Verdict, healthy, unhealthy, unknown

PACKAGE: Final = "nvidia_resiliency_ext"
CHILD: Final = os.path.join(os.path.dirname(__file__), "nvrx_child.py")

KINDS: Final = {
    "nvrx-gpu": "gpu-recovery",
    "nvrx-nvlink": "nvlink-down",
    "nvrx-link": "link-down",
    "nvrx-link-count": "link-down",
    "nvrx-storage": "storage-away",
}
"""What each of them answers for, and the kind of its no."""


class Nvrx:
    """All of them in one child."""

    names = tuple(KINDS)

    def __init__(self, child: Child) -> None:
        self._child = child

    async def look(self) -> Mapping[str, Verdict]:
        """See Check."""
        return judge(await self._child.ask())


def judge(ran: Ran) -> dict[str, Verdict]:
    """What the child says of each; what it does not speak of is unknown."""
    seen = ran.record()
    if ran.code is None or seen is None:
        why = ran.why or f"exit {ran.code}: {ran.output.strip()[-200:]}"
        return dict.fromkeys(KINDS, unknown(why))
    if isinstance(seen.get("error"), str):
        return dict.fromkeys(KINDS, unknown(seen["error"]))
    return {name: _verdict(name, seen.get(name)) for name in KINDS}


def _verdict(name: str, row: object) -> Verdict:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
        return unknown(f"made no sense of {str(row)[:200]}")
    if row[0] == "healthy":
        return healthy(row[1])
    return unhealthy(KINDS[name], row[1], mark=row[1]) if row[0] == "unhealthy" else unknown(row[1])
