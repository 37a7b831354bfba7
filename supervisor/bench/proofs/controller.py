"""The controller is killed just before and just after each kind of effect; the run must not notice."""

from __future__ import annotations

import os
import signal

from supervisor.bench import nodes
from supervisor.bench.proofs.runs import SMALL, launched_once, ledger_holds, running, undisturbed
from supervisor.bench.proofs.work import Work

POINTS = (
    ("capture", 1),
    ("fence", 1),
    ("stop", 1),
    ("bar", 1),
    ("make-view", 2),
    ("launch", 1),
    ("launch", 2),
    ("begin", 1),
    ("seal", 1),
    ("retain", 1),
    ("release", 1),
)
"""Kinds of effects, and the attempt that they concern where they name one."""


def prove(work: Work) -> None:
    """Every point, before and after."""
    calm = undisturbed(work, SMALL)
    work.measured |= {"undisturbed": calm, "points": 2 * len(POINTS)}
    for kind, number in POINTS:
        for when in ("before", "after"):
            survive(work, when, kind, number, calm)


def survive(work: Work, when: str, kind: str, number: int, calm: str) -> None:
    """A run of two ranks that loses one (a whole node, for `bar`), and its controller once."""
    what = f"{when} {kind} {number}"
    with running(work, what.replace(" ", "-"), SMALL, crash=(when, kind, number)) as run:
        run.wait_step(10)
        if kind == "bar":
            nodes.kill_node(run.run.root, run.slots(1)[1])
        else:
            os.kill(nodes.rank_pid(run.run.root, 1, 1), signal.SIGKILL)
        code = run.wait_end(120)
        history = run.history()
        crashed = os.path.exists(run.run.path(f"crashed-{when}-{kind}-{number}"))
        work.check(f"{what}: the controller died there once, and a second went on", ok=crashed and history.epoch == 2)
        once = launched_once(run, history)
        work.check(f"{what}: 2 attempts, each launched once", ok=once and len(history.attempts) == 2)
        work.check(f"{what}: the ledger adds up", ok=ledger_holds(history, SMALL.steps))
        same = code == 0 and run.weights_hash() == calm
        work.check(f"{what}: ends with 0 and the same bits", ok=same)
