"""The small parent of the controller: it restarts a controller that dies, at most 5 times in 10 minutes.

It holds nothing: the ranks are not its children, and everything that matters is in the journal.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from supervisor.errors import HALTED_EXIT, NOT_YET_EXIT, OWN_FAULT_EXIT, REFUSED_EXIT

RESTARTS_MAX = 5
WINDOW_S = 600.0
FINAL = frozenset({0, 2, NOT_YET_EXIT, REFUSED_EXIT, HALTED_EXIT})
"""Exit codes that are an answer, not an accident: done, bad usage, not yet, refused, halted."""


def keep(argv: Callable[[str, bool], list[str]], *, stops: bool = True) -> int:
    """Run a child until it ends with an answer. Signals go to the child, which asks the ranks to save and stop.

    Without `stops` a signal ends the child and the keeping of it, with 0: the run goes on.

    `argv(stop, again)` is its command line. `stop` names the signal by which a stop was asked for before it began, or is
    empty: a child that was still starting has died of the signal, and the next one must know. `again`: it follows one that
    died, so nobody has asked for a run that was stopped as planned to go on.
    """
    child: subprocess.Popen[bytes] | None = None
    stop = ""

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal stop
        if number != signal.SIGHUP:
            stop = signal.Signals(number).name
        if child is not None and child.poll() is None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    starts: list[float] = []
    while True:
        starts = [s for s in starts if time.monotonic() - s < WINDOW_S] + [time.monotonic()]
        knows = stop
        child = subprocess.Popen(argv(knows, child is not None))
        if stop != knows:  # the signal came while there was nobody to send it to
            child.terminate()
        code = child.wait()
        if code in FINAL:
            return code
        if stop and not stops:
            return 0
        how = f"signal {-code}" if code < 0 else f"code {code}"
        if len(starts) > RESTARTS_MAX:
            print(
                f"relight: the controller has died {len(starts)} times in {WINDOW_S / 60:.0f} min (last: {how}); "
                "it is not started again. The ranks go on. See: relight runbook controller-dies",
                file=sys.stderr,
            )
            return OWN_FAULT_EXIT
        print(f"relight: the controller ended with {how}; it is started again", file=sys.stderr)
