"""`relight bench real`: a real training run is hurt five times, and ends with the bits of a run that was never disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace

import click

from policies.reasons import Reason
from supervisor.bench import nodes, simulate
from supervisor.bench.real_run import RealRun, Shape
from supervisor.errors import HALTED_EXIT
from supervisor.telling.incident_story import incident_story
from supervisor.telling.record import known_of

PLAN_S = 5.0
"""From the confirmation of an incident to its plan, at most."""
STEPS = 80
SAVE_EVERY = 10


@dataclass
class Demo:
    """What happened, for people as it goes on and for programs at the end."""

    folder: str
    warm: bool
    began: float = field(default_factory=time.monotonic)
    checks: dict[str, bool] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """One line of progress."""
        click.echo(f"{time.monotonic() - self.began:6.1f} s  {text}")

    def check(self, what: str, *, ok: bool) -> None:
        """One thing that must hold."""
        self.checks[what] = ok
        self.say(f"{'ok  ' if ok else 'FAIL'}  {what}")


def shape(*, warm: bool) -> Shape:
    """TP2 x PP2 x DP2 on 4 nodes of 2 ranks, 2 spares; asynchronous saves, evaluations, one save slowed to 20 x a step."""
    extra = ("--step-seconds", "0.2", "--eval-every", "25", "--eval-seconds", "2", "--slow-save", "40:4")
    return Shape(steps=STEPS, save_every=SAVE_EVERY, warm=warm, extra=extra)


def undisturbed(demo: Demo) -> str:
    """The hash of the run that nobody touches."""
    run = RealRun(os.path.join(demo.folder, "undisturbed"), shape(warm=demo.warm))
    try:
        run.start()
        demo.say(f"undisturbed run: TP2 x PP2 x DP2, 4 nodes of 2 ranks, {STEPS} steps, a save every {SAVE_EVERY}")
        code = run.wait_end()
        demo.check("the undisturbed run ends with 0 and no incident", ok=code == 0 and not run.history().incidents)
        return run.weights_hash()
    finally:
        run.stop()


def kill_rank(demo: Demo, run: RealRun) -> None:
    """1. SIGKILL of a rank."""
    run.wait_step(14)
    pid = nodes.rank_pid(run.run.root, 1, 3)
    demo.say(f"1. SIGKILL of rank 3 (pid {pid}) at step {run.frontier()}")
    os.kill(pid, signal.SIGKILL)
    incident = run.wait_closed(1)
    same = run.slots(2) == run.slots(1)
    demo.check("rank 3 is named, nobody is barred, every slot keeps its node", ok=same and not incident.barred)
    first = incident.diagnosis.first if incident.diagnosis else ()
    demo.check("the earliest error is rank 3's SIGKILL", ok=[f.rank for f in first] == [3])


def freeze(demo: Demo, run: RealRun) -> str:
    """2. SIGSTOP of a node; a spare takes its slot. Answers the frozen node."""
    run.wait_step(24, attempt=2)
    node = run.slots(2)[1]
    demo.say(f"2. SIGSTOP of node {node} at step {run.frontier()}")
    nodes.freeze_node(run.run.root, node)
    incident = run.wait_closed(2)
    before, after = run.slots(2), run.slots(3)
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    demo.check(
        f"{node} is barred, a spare takes slot 1, no other slot changes",
        ok=changed == [1] and incident.barred == (node,),
    )
    return node


def thaw(demo: Demo, run: RealRun, node: str) -> None:
    """2b. SIGCONT after the relaunch: what thaws can publish nothing, and ends."""
    before = run.history().completed
    demo.say(f"2b. SIGCONT of {node}: its old ranks thaw")
    old = [nodes.rank_pid(run.run.root, 2, rank) for rank in (2, 3)]
    nodes.thaw_node(run.run.root, node)
    run.wait_for("the thawed ranks gone", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old) or None, 30)
    late = [c for c in run.history().completed if c not in before and c.startswith("a0002")]
    demo.check("the thawed ranks are gone and nothing of theirs was published", ok=not late)


def kill_node_in_save(demo: Demo, run: RealRun) -> None:
    """3. Death of a node in the middle of an asynchronous save."""
    run.wait_step(39, attempt=3)
    save = run.run.path("checkpoints", "saves", "a0003", "iter_0000040")

    def writing() -> bool | None:
        return (
            bool(os.path.isdir(save) and os.listdir(save) and not os.path.exists(os.path.join(save, ".metadata")))
            or None
        )

    run.wait_for("the save of step 40 being written", writing, 60)
    node = run.slots(3)[2]
    demo.say(f"3. death of node {node} in the middle of the save of step 40")
    nodes.kill_node(run.run.root, node)
    incident = run.wait_closed(3)
    demo.check(
        f"{node} is barred, the last spare takes slot 2; the save that was being written is not used",
        ok=incident.barred == (node,) and incident.checkpoint_step == 30,
    )


def kill_controller(demo: Demo, run: RealRun) -> None:
    """4. SIGKILL of the controller in mid-training: the ranks go on and are adopted."""
    run.wait_step(42, attempt=4)
    epoch, pid = run.history().epoch, run.controller_pid()
    demo.say(f"4. SIGKILL of the controller (pid {pid}) at step {run.frontier()}")
    os.kill(pid, signal.SIGKILL)
    run.wait_for("the next epoch", lambda: run.history().epoch > epoch or None, 30)
    run.wait_step(45, attempt=4)
    demo.check("a new controller adopts the ranks; the attempt goes on", ok=run.attempt() == 4)


def kill_controller_at_launch(demo: Demo, run: RealRun) -> None:
    """5. SIGKILL of a rank, and of the controller between the intent of the relaunch and the relaunch."""
    run.wait_step(46, attempt=4)
    epoch = run.history().epoch
    demo.say(f"5. SIGKILL of rank 6 at step {run.frontier()}, and of the controller between intent and launch")
    os.kill(nodes.rank_pid(run.run.root, 4, 6), signal.SIGKILL)
    run.wait_closed(4)
    history = run.history()
    once = [a.number for a in history.attempts].count(5) == 1
    demo.check("the controller died there, and attempt 5 was launched once", ok=once and history.epoch > epoch)


def disturb(demo: Demo, run: RealRun) -> None:
    """Start the run and hurt it five times."""
    run.start()
    demo.say("the same run again, now disturbed")
    kill_rank(demo, run)
    node = freeze(demo, run)
    thaw(demo, run, node)
    kill_node_in_save(demo, run)
    kill_controller(demo, run)
    kill_controller_at_launch(demo, run)
    code = run.wait_end()
    demo.check("the disturbed run ends with 0", ok=code == 0)


def archived(demo: Demo, run: RealRun) -> None:
    """The last save goes into the archive, comes back into a scratch place, and is read there to the last byte."""
    for words in (("checkpoints", "archive", run.run.root), ("drill", "archive", run.run.root)):
        told = subprocess.run([sys.executable, "-m", "supervisor", *words], check=False, capture_output=True, text=True)
        said = (told.stdout or told.stderr).strip().partition("\n")[0]
        demo.check(f"relight {' '.join(words[:2])}: {said}", ok=told.returncode == 0)


def ten_forty(demo: Demo) -> None:
    """10:40 at 640 nodes and 5,120 ranks, in the simulated world, told by relight itself."""
    simulate.quiet()
    began = time.monotonic()
    told = simulate.tell(simulate.every()["ten-forty-large"])
    click.echo(told.story())
    took = f"{time.monotonic() - began:.1f} s"
    demo.check(f"10:40 at 640 nodes, simulated in {took}: one node barred, one slot changed, 10:00 used", ok=told.good)


def poisoned(demo: Demo) -> None:
    """A sample that makes the loss NaN: the second failure on the same data halts the run, whatever node it is on."""
    calm = shape(warm=demo.warm)
    run = RealRun(
        os.path.join(demo.folder, "poisoned"), replace(calm, steps=40, extra=(*calm.extra, "--fail", "nan@25:3"))
    )
    try:
        run.start()
        demo.say("a third run, with one poisoned sample")
        code = run.wait_end()
        history = run.history()
    finally:
        run.stop()
    reason = history.halted.reason if history.halted else None
    for incident in history.incidents:
        click.echo("\n" + incident_story(history, incident.number, known_of(run.shape_layout())), nl=False)
    click.echo(f"\n{history.halted.seen}\nRead: relight runbook {reason}" if history.halted else "")
    twice = len(history.incidents) == 2
    demo.check(
        f"two failures on the same data, then a halt (exit {code}): {reason}", ok=_is_same_data(code, reason) and twice
    )


def _is_same_data(code: int, reason: Reason | None) -> bool:
    return code == HALTED_EXIT and reason is Reason.SAME_DATA


def main(folder: str, *, warm: bool, as_json: bool) -> int:
    """Run all, compare, tell. The exit code."""
    demo = Demo(os.path.abspath(folder), warm)
    ten_forty(demo)
    calm = undisturbed(demo)
    hurt_in = os.path.join(demo.folder, "disturbed")
    archive = f'[archive]\nplace = "{os.path.join(hurt_in, "archive")}"\n'
    run = RealRun(hurt_in, shape(warm=warm), crash=("before", "launch", 5), settings=archive)
    try:
        disturb(demo, run)
        hurt = run.weights_hash()
        archived(demo, run)
    finally:
        run.stop()
    history = run.history()
    books = history.books
    demo.check(f"the ledger adds up: {books.computed} computed", ok=books.computed - books.rolled_back == STEPS)
    known = known_of(run.shape_layout())
    plans = [
        one.times.decided - one.times.confirmed
        for one in history.incidents
        if one.times.decided and one.times.confirmed
    ]
    slowest = max(plans, default=PLAN_S)
    demo.check(
        f"from confirmation to a plan that a person can read: {slowest:.2f} s at most",
        ok=slowest < PLAN_S and len(plans) > 1,
    )
    for incident in history.incidents:
        click.echo("\n" + incident_story(history, incident.number, known), nl=False)
    click.echo(f"\nundisturbed: {calm}\ndisturbed:   {hurt}")
    demo.check("the weights and the optimizer state are those of the undisturbed run, bit for bit", ok=calm == hurt)
    poisoned(demo)
    good = all(demo.checks.values())
    tokens = os.path.join(demo.folder, "tokens.json")
    click.echo(
        "\nTo look at this run as a person on call does:\n"
        f"  relight token add me --role approver --tokens {tokens}\n"
        f"  relight console {demo.folder} --tokens {tokens}     then http://127.0.0.1:8440/",
        err=as_json,
    )
    if as_json:
        click.echo(json.dumps({"schema": 1, "undisturbed": calm, "disturbed": hurt, "checks": demo.checks, "ok": good}))
    return 0 if good else 1
