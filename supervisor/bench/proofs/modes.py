"""Who is asked, what waits, and what a person's word does: each mode with a real run of two ranks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from policies.facts import NodeState
from policies.reasons import Reason
from slurm import processes
from supervisor.bench import nodes
from supervisor.bench.proofs.runs import (
    SMALL,
    ledger_holds,
    relight,
    running,
    undisturbed,
    wait_asking,
    watch,
    with_extra,
)
from supervisor.bench.proofs.work import Work
from supervisor.bench.real_run import RealRun
from supervisor.errors import HALTED_EXIT
from supervisor.telling.status import read_status

LOOKED_S = 3.0
"""How long the controller is watched doing nothing: more than one of its looks at everything (1 s)."""
SLOW_S = 0.3
"""Of a step, where a command (a second and more on a busy machine) must be heard while the ranks still train."""
NOTE = """import os, sys
with open(sys.argv[1], "a") as file:
    file.write(os.environ["RELIGHT_NOTICE_WHAT"] + ": " + os.environ["RELIGHT_NOTICE_TITLE"] + "\\n" + sys.stdin.read())
"""


def prove(work: Work) -> None:
    """Every flow."""
    calm = undisturbed(work, SMALL)
    for flow in FLOWS:
        flow(work, calm)


def _profile(work: Work, name: str, text: str) -> str:
    path = work.path(f"{name}.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'extends = "bench"\n{text}')
    return path


def _run(work: Work, name: str, profile: str, *, step_s: float = 0.1) -> AbstractContextManager[RealRun]:
    """A run with that profile, whose notices are appended to NAME.notices."""
    script = work.path("note.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(NOTE)
    shape = with_extra(replace(SMALL, profile=_profile(work, name, profile)), "--step-seconds", str(step_s))
    settings = f'[notify]\ncommand = ["{sys.executable}", "{script}", "{work.path(name)}.notices"]\n'
    return running(work, name, shape, settings=settings)


def _notices(work: Work, run: RealRun, name: str) -> str:
    """What the site's command was given; waits for the first."""

    def look() -> str | None:
        try:
            with open(f"{work.path(name)}.notices", encoding="utf-8") as file:
                return file.read() or None
        except FileNotFoundError:
            return None

    return run.wait_for("a notice", look, 30)


def _kill(run: RealRun, rank: int = 1) -> None:
    """SIGKILL of a rank once a save is sealed."""
    run.wait_for("a sealed save", lambda: run.history().completed or None)
    run.wait_step(9)
    os.kill(nodes.rank_pid(run.run.root, 1, rank), signal.SIGKILL)


def _fenced(run: RealRun) -> bool:
    return os.path.exists(run.run.attempt(1, "FENCED"))


def _digest(run: RealRun) -> str:
    return run.history().decision_digest or ""


def _ends_equal(work: Work, run: RealRun, what: str, calm: str) -> None:
    code = run.wait_end(120)
    good = code == 0 and ledger_holds(run.history(), SMALL.steps) and run.weights_hash() == calm
    work.check(f"{what}: it goes on and ends with the same bits (exit {code})", ok=good)


def approve(work: Work, calm: str) -> None:
    """A dead attempt is stopped, the plan is told, and nothing is started before the right word."""
    with _run(work, "approve", 'mode = "approve"\n') as run:
        _kill(run)
        status = wait_asking(run)
        watch(run, LOOKED_S)
        stopped = run.history().attempts[0].closed_at is not None
        work.check(f"approve: the dead attempt is stopped; {status.held}", ok=stopped and _fenced(run))
        work.check("approve: nothing is relaunched", ok=run.attempt() == 1)
        told, digest = _notices(work, run, "approve"), _digest(run)
        work.measured["notice"] = told.splitlines()
        story = told.startswith("plan: ") and digest[:6] in told and len(told.splitlines()) > 5
        work.check("approve: the notify command was run, with the plan's story", ok=story)
        page = relight(run, "plan")
        work.check("approve: relight plan shows it", ok=page.returncode == 0 and digest[:6] in page.stdout)
        wrong = "".join("0" if c != "0" else "1" for c in digest[:6])
        work.check("approve: a wrong plan is refused (4)", ok=relight(run, "approve", "--plan", wrong).returncode == 4)
        watch(run, LOOKED_S)
        work.check("approve: still nothing is relaunched", ok=run.attempt() == 1)
        answer = relight(run, "approve", "--plan", digest[:6])
        work.check("approve: the right one is taken (0)", ok=answer.returncode == 0)
        _ends_equal(work, run, "approve", calm)


def refuse(work: Work, calm: str) -> None:
    """A refusal halts; a resume that was filed while nobody was there is heard by the next start."""
    with _run(work, "refuse", 'mode = "approve"\n') as run:
        _kill(run)
        wait_asking(run)
        answer = relight(run, "refuse", "--plan", _digest(run)[:6], "--because", "the proof says no")
        code = run.wait_end(60)
        halted = run.history().halted
        good = answer.returncode == 0 and code == HALTED_EXIT and halted is not None
        work.check("refuse: the run halts (93)", ok=good and halted is not None and halted.reason is Reason.REFUSED)
        started = run.attempt()
        run.start()
        again = run.wait_end(60)
        work.check("refuse: started again it is halted still", ok=again == HALTED_EXIT and run.attempt() == started)
        filed = relight(run, "resume", "--because", "the proof goes on")
        work.check("refuse: a resume without a controller waits (3)", ok=filed.returncode == 3)
        run.start()
        wait_asking(run)
        answer = relight(run, "approve", "--plan", _digest(run)[:6])
        work.check("refuse: resumed, the plan is made again and approved", ok=answer.returncode == 0)
        _ends_equal(work, run, "refuse", calm)


def frozen(work: Work, calm: str) -> None:
    """Nothing has died: in approve mode nothing is stopped before a person says so."""
    with _run(work, "frozen", 'mode = "approve"\n') as run:
        run.wait_step(9)
        node = run.slots(1)[1]
        nodes.freeze_node(run.run.root, node)
        wait_asking(run)
        watch(run, LOOKED_S)
        other = processes.look(nodes.rank_pid(run.run.root, 1, 0))
        alive = other is not None and other.state not in "TZX"
        history = run.history()
        still = alive and not _fenced(run) and history.attempts[0].closed_at is None and not history.bars
        work.check(
            "frozen: nothing is fenced, stopped or barred before a person says so", ok=still and run.attempt() == 1
        )
        answer = relight(run, "approve", "--plan", _digest(run)[:6])
        work.check("frozen: the plan is approved", ok=answer.returncode == 0)
        run.wait_for("attempt 2", lambda: run.attempt() >= 2 or None)
        nodes.thaw_node(run.run.root, node)
        _ends_equal(work, run, "frozen", calm)
        barred = [bar.node for bar in run.history().bars]
        work.check(
            "frozen: the frozen node alone is barred, a spare has its slot", ok=barred == [node] != run.slots(2)[1:]
        )


def observe(work: Work, _calm: str) -> None:
    """Watches and tells; touches nothing."""
    with _run(work, "observe", 'mode = "observe"\n') as run:
        run.wait_step(9)
        os.kill(nodes.rank_pid(run.run.root, 1, 1), signal.SIGKILL)
        run.wait_for("the incident", lambda: run.history().incident)
        watch(run, LOOKED_S)
        history, status = run.history(), read_status(run.run)
        quiet = (
            not _fenced(run) and history.attempts[0].closed_at is None and not history.completed and not history.bars
        )
        work.check("observe: nothing is fenced, stopped, sealed or barred", ok=quiet and run.attempt() == 1)
        shown = status is not None and bool(status.held) and status.view.nodes is not None
        work.check(f"observe: it says what it would do: {status.held if status else ''}", ok=shown)
        up = status is not None and isinstance(status.view.nodes, dict) and len(status.view.nodes) == 3
        up = up and all(n.state is NodeState.UP for n in status.view.nodes.values())  # type: ignore[union-attr]
        work.check("observe: the nodes are as they were", ok=up)
        evidence = history.incidents[0].times.evidence is not None
        work.check("observe: the evidence is kept", ok=evidence)


def paused(work: Work, calm: str) -> None:
    """A paused run starts and stops nothing; resumed, it does what waits."""
    with _run(work, "paused", "", step_s=SLOW_S) as run:
        run.wait_step(5)
        work.check("paused: the pause is taken", ok=relight(run, "pause").returncode == 0)
        _kill(run)
        run.wait_for("the incident", lambda: run.history().incident)
        watch(run, LOOKED_S)
        still = not _fenced(run) and run.history().attempts[0].closed_at is None and run.attempt() == 1
        work.check("paused: nothing is stopped or started", ok=still)
        work.check("paused: the resume is taken", ok=relight(run, "resume").returncode == 0)
        _ends_equal(work, run, "paused", calm)


def halt(work: Work, calm: str) -> None:
    """A person halts and resumes while the controller holds the allocation."""
    with _run(work, "halt", "hold_s = 300\n", step_s=SLOW_S) as run:
        run.wait_for("a sealed save", lambda: run.history().completed or None)
        work.check("halt: it is taken", ok=relight(run, "halt", "--because", "the proof").returncode == 0)
        run.wait_for("the attempt stopped", lambda: run.history().attempts[0].closed_at)
        watch(run, LOOKED_S)
        held = run.process is not None and run.process.poll() is None and run.attempt() == 1
        work.check("halt: stopped, nothing is started, the nodes are held", ok=held)
        work.check("halt: lifting it takes a reason (2)", ok=relight(run, "resume").returncode == 2)
        answer = relight(run, "resume", "--because", "the proof goes on")
        work.check("halt: with a reason it is lifted (0)", ok=answer.returncode == 0)
        _ends_equal(work, run, "halt", calm)


def not_cleared(work: Work, calm: str) -> None:
    """Auto mode asks for a class of faults that is not cleared."""
    with _run(work, "not-cleared", 'cleared = ["node-lost"]\n') as run:
        _kill(run)
        status = wait_asking(run)
        watch(run, LOOKED_S)
        asks = "rank-died is not cleared" in status.held and run.attempt() == 1
        work.check(f"not cleared: auto mode {status.held}", ok=asks)
        answer = relight(run, "approve", "--plan", _digest(run)[:6])
        work.check("not cleared: the plan is approved", ok=answer.returncode == 0)
        _ends_equal(work, run, "not cleared", calm)


FLOWS: tuple[Callable[[Work, str], None], ...] = (approve, refuse, frozen, observe, paused, halt, not_cleared)
