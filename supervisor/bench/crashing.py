"""`relight run` with a controller that kills itself once, just before or after one kind of effect, or amid a launch.

`python -m supervisor.bench.crashing before launch 3 CONFIG RUN_DIR -- CMD`: SIGKILL before the launch of attempt 3. The parent
starts the controller again, as it would after any death. What is supervised, and how, is the product's own code.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

from policies.history import History
from slurm import localfiles
from slurm.cluster import Cluster, LaunchSpec
from supervisor import app, parent
from supervisor.actions import Action
from supervisor.durable import create_whole
from supervisor.perform.effects import Effects
from supervisor.prepare import Wishes, prepare


class Crashing(Effects):
    """Effects that end this process once, at one point."""

    def __init__(self, inner: Effects, marker: str, when: str, kind: str, number: int) -> None:
        self.__dict__ = inner.__dict__
        self._at = (when, kind, number)
        self._marker = marker

    def perform(self, action: Action, history: History) -> None:
        """As the real effects, but for the one crash."""
        when, kind, number = self._at
        hit = action.kind == kind and getattr(action, "attempt", number) == number
        if hit and when == "before" and create_whole(self._marker, b""):
            os.kill(os.getpid(), signal.SIGKILL)
        if hit and when == "amid" and not os.path.exists(self._marker):
            ports = self._ports
            self._ports = replace(ports, cluster=HalfTold(ports.cluster, ports.run.root, self._marker))
        super().perform(action, history)
        if hit and when == "after" and create_whole(self._marker, b""):
            os.kill(os.getpid(), signal.SIGKILL)


class HalfTold:
    """A cluster of which the first node hears of a launch; then this process ends."""

    def __init__(self, inner: Cluster, run_dir: str, marker: str) -> None:
        self._inner = inner
        self._run_dir = run_dir
        self._marker = marker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def launch(self, spec: LaunchSpec) -> None:
        """The order stands whole; one node is told."""
        localfiles.write_order(self._run_dir, spec)
        create_whole(self._marker, b"")
        self._inner.launch(replace(spec, hosts=spec.hosts[:1]))
        os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> int:
    """`before|after|amid KIND NUMBER [--epoch-first|--epoch-again] CONFIG RUN_DIR -- CMD...`."""
    when, kind, number, *rest = argv
    if not rest[0].startswith("--epoch"):
        own = [sys.executable, "-m", "supervisor.bench.crashing", when, kind, number]
        return parent.keep(lambda _, again: [*own, "--epoch-again" if again else "--epoch-first", *rest])
    config, run_dir, _, *command = rest[1:]
    run, settings, rules = prepare(Wishes(None, config, None, run_dir, tuple(command)))
    app.log_to_stderr()
    parts = app.build(run, settings, rules)
    marker = run.path(f"crashed-{when}-{kind}-{number}")
    return app.supervise(
        replace(parts, wrap_effects=lambda e: Crashing(e, marker, when, kind, int(number))),
        again=rest[0] == "--epoch-again",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
