"""No false stall: start-ups from cold, a save that takes 20 steps' time, an evaluation of some seconds."""

from __future__ import annotations

from supervisor.bench.proofs.runs import running
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import Shape

STEP_S = 0.25
SLOW_S = 20 * STEP_S
EVALUATION_S = 6.0
"""Longer than the 4 s after which this profile calls a step stalled (policies/profiles/bench.toml); so is the slow save."""


def prove(work: Work) -> None:
    """Once with saves that training waits for, cold; once with saves behind it, warm."""
    for asynchronous, warm in ((False, False), (True, True)):
        name = f"{'asynchronous' if asynchronous else 'synchronous'} saves, {'warm' if warm else 'cold'}"
        slow = ("--step-seconds", str(STEP_S), "--slow-save", f"10:{SLOW_S}")
        extra = (*slow, "--eval-every", "12", "--eval-seconds", str(EVALUATION_S))
        shape = Shape(steps=26, save_every=5, spares=0, asynchronous=asynchronous, warm=warm, extra=extra)
        with running(work, name.replace(", ", "-").replace(" ", "-"), shape) as run:
            code = run.wait_end()
            history = run.history()
            work.measured[name] = {"exit": code, "incidents": len(history.incidents), "sealed": len(history.completed)}
            seen = "; ".join(incident.trouble.text for incident in history.incidents)
            quiet = code == 0 and not history.incidents and len(history.attempts) == 1
            work.check(f"{name}: no incident{f' but {seen}' if seen else ''}", ok=quiet)
            work.check(f"{name}: every save is sealed", ok=len(history.completed) == 6)
