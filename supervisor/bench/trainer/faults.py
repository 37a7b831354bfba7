"""Faults on purpose: of the restore (so that acceptance is seen to catch them) and of the training itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from supervisor.bench.trainer.injected import Inbox, claim
from supervisor.bench.trainer.optimizer import Buffers
from supervisor.bench.trainer.options import Fail, Options
from supervisor.bench.trainer.places import Layout


class PlantedError(RuntimeError):
    """Raised on purpose."""


def plants_for(o: Options, step: int) -> set[str]:
    """The kinds of restore faults for this rank, after a load of `step`."""
    return {plant.kind for plant in o.plants if plant.rank == o.rank and plant.step in (None, step)}


def spoil(kinds: set[str], buffers: Buffers, first_master: Any) -> None:
    """Put those faults in that lie in the tensors. `first_master` are the master weights before the load."""
    if "stale-shard" in kinds:
        buffers.master.copy_(first_master)
    if "lost-second-moment" in kinds:
        buffers.exp_avg_sq.zero_()


class Fails:
    """The faults of the training. With `--fail-once` the file remembers what has fired, over restarts."""

    def __init__(self, o: Options) -> None:
        self.o = o
        fired = _lines(o.fail_once) if o.fail_once else set()
        # Read once, before the ranks have met: so all agree on what is still to come.
        self.armed = [fail for fail in o.fails if str(fail) not in fired]
        self.inbox = Inbox(os.environ.get("RELIGHT_RUN_DIR", ""))
        self.armed += self.inbox.fresh()

    def poisoned(self, layout: Layout) -> frozenset[int]:
        """The samples whose loss is NaN: the first that the named rank's replica reads at the named step."""
        share = self.o.global_batch // self.o.dp
        return frozenset(
            (fail.step - 1) * self.o.global_batch + layout.place(fail.rank).dp * share
            for fail in self.armed
            if fail.kind == "nan"
        )

    def before(self, step: int) -> None:
        """Fire what is due on this rank at the beginning of `step`, and take in what was injected since the last."""
        self.armed += self.inbox.fresh()
        for fail in self.armed:
            if (fail.rank, fail.step) == (self.o.rank, step):
                self._fire(fail)

    def _fire(self, fail: Fail) -> None:
        if fail.source and (fail.kind == "nan" or not claim(fail)):
            return  # an injected poison stays in its sample, whoever reads it and however often
        if self.o.fail_once and not fail.source:
            with open(self.o.fail_once, "a", encoding="ascii") as file:
                file.write(f"{fail}\n")
        if fail.kind == "exception":
            raise PlantedError(f"planted: {fail}")
        if fail.kind == "exit3":
            sys.stdout.flush()
            os._exit(3)
        if fail.kind == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        while fail.kind == "hang":
            time.sleep(3600)


def _lines(path: str) -> set[str]:
    try:
        with open(path, encoding="ascii") as file:
            return set(file.read().split("\n"))
    except FileNotFoundError:
        return set()
