"""`relight run` with a controller that kills itself once, just before or after one kind of effect.

`python -m supervisor.bench.crashing before launch 3 CONFIG RUN_DIR -- CMD`: SIGKILL before the launch of attempt 3. The parent
starts the controller again, as it would after any death. What is supervised, and how, is the product's own code.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

from policies.facts import History
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
        super().perform(action, history)
        if hit and when == "after" and create_whole(self._marker, b""):
            os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> int:
    """`before|after KIND NUMBER [--epoch-only] CONFIG RUN_DIR -- CMD...`."""
    when, kind, number, *rest = argv
    if rest[0] != "--epoch-only":
        return parent.keep(
            lambda _: [sys.executable, "-m", "supervisor.bench.crashing", when, kind, number, "--epoch-only", *rest]
        )
    config, run_dir, _, *command = rest[1:]
    run, settings, rules = prepare(Wishes(None, config, None, run_dir, tuple(command)))
    app.log_to_stderr()
    parts = app.build(run, settings, rules)
    marker = run.path(f"crashed-{when}-{kind}-{number}")
    return app.supervise(replace(parts, wrap_effects=lambda e: Crashing(e, marker, when, kind, int(number))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
