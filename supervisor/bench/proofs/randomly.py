"""Faults of every kind at random places and times. `python -m supervisor.bench.proofs.randomly SEED` repeats one of them."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace

from supervisor.bench import nodes
from supervisor.bench.proofs.runs import (
    attempt_or_end,
    launched_once,
    ledger_holds,
    running,
    undisturbed,
    with_extra,
)
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun, Shape
from supervisor.errors import HALTED_EXIT, UserError

RUNS = 20
SHAPE = Shape(steps=40, save_every=8, warm=True, spares=1, extra=("--step-seconds", "0.1"))
LAST = 34
"""No fault is begun after this step, so that it strikes a run that is still training."""
KINDS = (
    "kill-rank",
    "kill-shim",
    "freeze-node",
    "kill-node",
    "kill-controller",
    "stop-rank",
    "exception",
    "exit3",
)
PLANNED = frozenset({"exception", "exit3"})
"""Those that the trainer does itself (its --fail)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: of what kind, at which rank or its node, how long after which step. Step 0: while it starts."""

    seed: int
    kind: str
    rank: int
    step: int
    delay_s: float
    asynchronous: bool

    def __str__(self) -> str:
        saves = "asynchronous" if self.asynchronous else "synchronous"
        return f"seed {self.seed}: {self.kind}, rank {self.rank}, {self.delay_s:.2f} s after step {self.step}, {saves} saves"


def draw(seed: int) -> Fault:
    """Eight seeds in a row have eight kinds; everything else is drawn."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    step = rng.randint(1 if kind in PLANNED else 0, LAST)
    return Fault(seed, kind, rng.randrange(SHAPE.world), step, rng.uniform(0, 0.2), rng.random() < 0.5)


def prove(work: Work, runs: int = RUNS) -> None:
    """`runs` seeds from the first one on; each ends bit-equal, or halted with a reason."""
    first = work.seed * 1000
    calm = {True: undisturbed(work, SHAPE, "asynchronous")}
    calm[False] = undisturbed(work, replace(SHAPE, asynchronous=False), "synchronous")
    work.check("asynchronous and synchronous saves end with the same bits", ok=calm[True] == calm[False])
    outcomes = {seed: suffer(work, draw(seed), calm[True]) for seed in range(first, first + runs)}
    count = Counter(outcome.split(":")[0] for outcome in outcomes.values())
    work.measured |= {"undisturbed": calm[True], "outcomes": dict(count), "seeds": outcomes}
    work.say(f"seeds {first} to {first + runs - 1}: {', '.join(f'{n} {what}' for what, n in sorted(count.items()))}")
    bad = [seed for seed, outcome in outcomes.items() if outcome.split(":")[0] not in {"bit-equal", "halted"}]
    if bad:
        work.say(f"failed: {bad}; again: python -m supervisor.bench.proofs.randomly SEED")


def suffer(work: Work, fault: Fault, calm: str) -> str:
    """One run with one fault: how it ended, in a word and then a colon and more."""
    once = work.path(f"fired-{fault.seed}")
    shape = replace(SHAPE, asynchronous=fault.asynchronous)
    if fault.kind in PLANNED:
        shape = with_extra(shape, "--fail", f"{fault.kind}@{fault.step}:{fault.rank}", "--fail-once", once)
    work.say(str(fault))
    try:
        with running(work, f"seed-{fault.seed}", shape) as run:
            strike(run, fault)
            code = run.wait_end(180)
            outcome = judge(run, fault, code, calm)
            good = outcome.startswith(("bit-equal", "halted"))
            work.check(f"seed {fault.seed}, {fault.kind}: {outcome}", ok=good)
    except UserError as error:
        outcome = f"stuck: {error}"
        work.check(f"seed {fault.seed}, {fault.kind}: {outcome}", ok=False)
    return outcome


def strike(run: RealRun, fault: Fault) -> None:
    """Do what was drawn. A frozen node thaws once there is another attempt."""
    root = run.run.root
    if fault.kind in PLANNED:
        return
    run.wait_for(f"rank {fault.rank}", lambda: _started(root, fault.rank))
    if fault.step:
        run.wait_step(fault.step)
    time.sleep(fault.delay_s)  # a moment inside a step, which nothing announces
    node = run.slots(1)[run.shape_layout().slot_of(fault.rank)]
    match fault.kind:
        case "kill-rank":
            os.kill(nodes.rank_pid(root, 1, fault.rank), signal.SIGKILL)
        case "kill-shim":
            os.kill(nodes.shim_pid(root, 1, fault.rank), signal.SIGKILL)
        case "stop-rank":
            os.kill(nodes.rank_pid(root, 1, fault.rank), signal.SIGSTOP)
        case "kill-controller":
            os.kill(run.controller_pid(), signal.SIGKILL)
        case "kill-node":
            nodes.kill_node(root, node)
        case "freeze-node":
            nodes.freeze_node(root, node)
            if attempt_or_end(run, 2):
                nodes.thaw_node(root, node)


def _started(root: str, rank: int) -> bool | None:
    try:
        return nodes.rank_pid(root, 1, rank) > 0
    except LookupError:
        return None


def judge(run: RealRun, fault: Fault, code: int, calm: str) -> str:
    """How a run ended."""
    history = run.history()
    if code == HALTED_EXIT:
        halted = history.halted
        return f"halted: {halted.reason}: {halted.seen}" if halted and halted.seen else "halted without a reason"
    if code != 0:
        return f"ended with {code}"
    noticed = history.epoch > 1 if fault.kind == "kill-controller" else bool(history.incidents)
    if not noticed:
        return "missed: the fault was not noticed"
    if not launched_once(run, history):
        return "twice: an attempt was launched more than once"
    if not ledger_holds(history, SHAPE.steps):
        return f"ledger: {history.books}"
    if run.weights_hash() != calm:
        return "different: other weights than undisturbed"
    return f"bit-equal: {len(history.incidents)} incidents, {len(history.attempts)} attempts"


def main(argv: list[str]) -> int:
    """One seed again."""
    work = Work("randomly", tempfile.mkdtemp(prefix="relight-randomly-"))
    calm = undisturbed(work, SHAPE)
    suffer(work, draw(int(argv[0])), calm)
    return 0 if work.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
