"""Small real runs for the proofs, and what can be read from one when it is over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from policies.history import History
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun, Shape
from supervisor.errors import UserError
from supervisor.telling.status import Status, read_status

SMALL = Shape(
    tp=1, pp=1, dp=2, ranks_per_node=1, spares=1, steps=24, save_every=4, warm=True, extra=("--step-seconds", "0.1")
)
"""Two ranks on two nodes, one spare: the least that has a neighbour."""


@contextmanager
def running(work: Work, name: str, shape: Shape, **more: Any) -> Iterator[RealRun]:
    """A run that has been started and is ended at the end, whatever happens. What held leaves no folder."""
    run = RealRun(work.path(name), shape, **more)
    run.clear()
    before = dict(work.checks)
    run.start()
    try:
        yield run
    finally:
        run.stop()
    if all(held for what, held in work.checks.items() if before.get(what, True)):
        run.clear()


def undisturbed(work: Work, shape: Shape, name: str = "undisturbed") -> str:
    """The hash of a run that nobody touches."""
    with running(work, name, shape) as run:
        code = run.wait_end()
        quiet = code == 0 and not run.history().incidents
        work.check(f"the {name} run ends with 0 and no incident", ok=quiet)
        return run.weights_hash()


def with_extra(shape: Shape, *extra: str) -> Shape:
    """The same shape with more options for the trainer."""
    return replace(shape, extra=(*shape.extra, *extra))


def relight(run: RealRun, command: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`relight COMMAND RUN ARGS`, as a person would type it."""
    return subprocess.run(
        [sys.executable, "-m", "supervisor", command, run.run.root, *args], check=False, capture_output=True, text=True
    )


def wait_asking(run: RealRun, seconds: float = 60) -> Status:
    """Wait until a plan waits for a person; what status.json says then."""

    def look() -> Status | None:
        status = read_status(run.run)
        return status if status and status.asks and run.history().decision_digest else None

    return run.wait_for("a plan that waits for a person", look, seconds)


def watch(run: RealRun, seconds: float) -> None:
    """Let the controller look at the world for so long: what it does not do must have had its time."""
    first = run.wait_for("the status", lambda: read_status(run.run))
    run.wait_for(
        f"{seconds:.0f} s of looking", lambda: ((s := read_status(run.run)) and s.at >= first.at + seconds) or None
    )


def launched_once(run: RealRun, history: History) -> bool:
    """Each attempt of the journal has one order at the nodes, and its ranks have loaded once."""
    folder = run.run.path("nodes", "orders")
    found = (re.search(r"\.a(\d{4})\.e\d+\.json\Z", name) for name in os.listdir(folder))
    orders = Counter(int(match[1]) for match in found if match)
    numbers = [attempt.number for attempt in history.attempts]
    if len(set(numbers)) != len(numbers) or set(orders) - set(numbers) or any(n != 1 for n in orders.values()):
        return False
    return all(_loads(run, number) <= 1 for number in numbers)


def _loads(run: RealRun, attempt: int) -> int:
    """How often the reporting rank says in its log that it has loaded."""
    path = run.run.attempt(attempt, "logs", f"rank_{run.shape.world - 1:05d}.log")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return sum(line.startswith("loaded ") for line in file)
    except FileNotFoundError:
        return 0


def ledger_holds(history: History, steps: int) -> bool:
    """Computed updates = those of the lineage + rolled back; a finished run has `steps` of them, none skipped."""
    books = history.books
    return books.computed - books.rolled_back + books.skipped == steps and books.skipped == 0


def attempt_or_end(run: RealRun, number: int, seconds: float = 120) -> bool:
    """Wait for attempt `number`; False when relight has ended before."""
    try:
        run.wait_for(f"attempt {number}", lambda: run.attempt() >= number or None, seconds)
    except UserError:
        if run.process is not None and run.process.poll() is not None:
            return False
        raise
    return True
