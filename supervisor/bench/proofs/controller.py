"""The controller is killed just before and just after each kind of effect, and amid a launch; the run must not notice."""

from __future__ import annotations

import os

from supervisor.bench import nodes
from supervisor.bench.proofs.runs import SMALL, launched_once, ledger_holds, running, undisturbed, with_extra
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
    work.measured |= {"undisturbed": calm, "points": 2 * len(POINTS) + 1}
    for kind, number in POINTS:
        for when in ("before", "after"):
            survive(work, when, kind, number, calm)
    survive(work, "amid", "launch", 2, calm)


def survive(work: Work, when: str, kind: str, number: int, calm: str) -> None:
    """A run of two ranks that loses one (a whole node, for `bar`), and its controller once.

    The rank ends by itself at step 10: nobody can be late for it while no controller tells the steps. For `stop` it hangs:
    of two ranks the other one ends with it, and nothing would be left to stop.
    """
    what = f"{when} {kind} {number}"
    how = "hang" if kind == "stop" else "exit3"
    fault = () if kind == "bar" else ("--fail", f"{how}@10:1", "--fail-once", work.path(f"fired {what}"))
    with running(work, what.replace(" ", "-"), with_extra(SMALL, *fault), crash=(when, kind, number)) as run:
        if kind == "bar":
            run.wait_step(8)
            nodes.kill_node(run.run.root, run.slots(1)[1])
        code = run.wait_end(120)
        history = run.history()
        crashed = os.path.exists(run.run.path(f"crashed-{when}-{kind}-{number}"))
        work.check(f"{what}: the controller died there once, and a second went on", ok=crashed and history.epoch == 2)
        once = launched_once(run, history) and len(history.attempts) == 2
        work.check(f"{what}: 1 incident, 2 attempts, each launched once", ok=once and len(history.incidents) == 1)
        work.check(f"{what}: the ledger adds up", ok=ledger_holds(history, SMALL.steps))
        same = code == 0 and run.weights_hash() == calm
        work.check(f"{what}: ends with 0 and the same bits", ok=same)
