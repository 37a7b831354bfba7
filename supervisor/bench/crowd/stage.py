"""The controller of a run of 640 nodes that are only shown: a real journal, a real hub, a real loop; no node, no rank.

`python -m supervisor.bench.crowd.stage RUN_DIR SLOTS` runs until it is asked to stop, and prints how long each turn took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from policies.rules import Rules
from slurm.cluster import ClusterView, LaunchSpec, NodeCondition, NodeRow, StepRow, Unreadable
from supervisor.checkpoints.store import PosixStore
from supervisor.controller import Controller, Parts
from supervisor.profiles import load_profile
from supervisor.rundir import RunDir
from supervisor.settings import LayoutSettings, RunSettings, Settings, freeze

SPARES = 3
RANKS_A_NODE = 8


def node_names(slots: int) -> tuple[str, ...]:
    """The nodes of the slots, then the spares."""
    return tuple(f"n{i:04d}" for i in range(slots + SPARES))


def shape(slots: int) -> LayoutSettings:
    """TP8, PP8 where the slots allow it, and as many replicas as fit."""
    pp = 8 if slots % 8 == 0 else 1
    return LayoutSettings(tp=RANKS_A_NODE, pp=pp, dp=slots // pp, ranks_per_node=RANKS_A_NODE)


class ShownCluster:
    """A cluster on which all is well: each node is up, each step that was launched runs."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._nodes = {name: NodeRow(name, NodeCondition.UP) for name in names}
        self._steps: dict[str, StepRow] = {}
        self._lock = threading.Lock()

    def read(self) -> ClusterView | Unreadable:
        """All nodes, all steps."""
        with self._lock:
            return ClusterView(self._nodes, dict(self._steps))

    def launch(self, spec: LaunchSpec) -> None:
        """Shown as running from now on."""
        hosts = frozenset(spec.hosts)
        with self._lock:
            self._steps.setdefault(spec.name, StepRow(spec.name, running=True, running_on=hosts, known_on=hosts))

    def stop(self, name: str, epoch: int) -> None:  # noqa: ARG002 - as the port has it
        """Shown no more."""
        with self._lock:
            self._steps.pop(name, None)

    def bar(self, node: str, key: str, why: str = "") -> None:
        """Nobody else is here."""

    def unbar(self, node: str, key: str) -> None:
        """Nobody else is here."""

    def probe(self, node: str, deadline_s: float) -> bool:  # noqa: ARG002 - as the port has it
        """Every node answers."""
        return node in self._nodes

    def address(self, node: str) -> str:  # noqa: ARG002 - as the port has it
        """All nodes are this machine."""
        return "127.0.0.1"

    def next_job(self, start: str, exclude: Sequence[str], epoch: int) -> None:
        """There are no jobs here."""

    def release(self, epoch: int) -> None:
        """There is nothing to let go."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Nothing changes by itself."""


def main(root: str, slots: int) -> None:
    """Run the controller until it is asked to stop; the turns' seconds, oldest first, as JSON on the last line."""
    run = RunDir(os.path.abspath(root))
    run.create()
    settings = Settings(run=RunSettings(name="crowd"), layout=shape(slots), command=("train",), cwd=run.root)
    settings = freeze(run.root, settings)
    rules: Rules = load_profile("auto")
    store = PosixStore(run.path("checkpoints"), settings.shape().world, time.time, settle_s=1.0)
    turns: list[tuple[float, float]] = []
    cluster = ShownCluster(node_names(slots))
    parts = Parts(
        run, settings, rules, cluster, store, on_turn=lambda seconds: turns.append((time.monotonic(), seconds))
    )
    controller = Controller(parts)

    async def until_told() -> None:
        work = asyncio.create_task(controller.run())
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        done, _ = await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            raise RuntimeError(f"the controller ended with {work.result()}")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(until_told())
    print(json.dumps(turns), flush=True)
    os._exit(0)  # a thread may still wait on stdin


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
