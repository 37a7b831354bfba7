"""Kill what is left of older attempts on this node, until nothing is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from slurm.processes import send, wait_gone
from supervisor.agent.pids import leftovers

SHIM_S = 1.0
"""Seconds that a shim has to write its rank's exit record after the rank is killed."""


def sweep(run_dir: str, node: str, before: int, deadline_s: float) -> bool:
    """SIGKILL every process of attempts lower than `before`; True when none is left.

    Blocks up to `deadline_s` seconds. A stopped process dies of SIGKILL too; one in an uninterruptible call does not,
    and then the answer is False and the question is to be put again.
    """
    until = time.monotonic() + deadline_s
    while left := leftovers(run_dir, node, before):
        if time.monotonic() >= until:
            return False
        _kill(left.ranks)
        wait_gone(left.ranks, max(0.0, until - time.monotonic()))
        if left.shims and not wait_gone(left.shims, min(SHIM_S, max(0.0, until - time.monotonic()))):
            _kill(left.shims)
            wait_gone(left.shims, max(0.0, until - time.monotonic()))
    return True


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            send((pid,), signal.SIGKILL)
        except PermissionError:  # it has become somebody else's; the next look will say so
            continue
