"""A script without our call is supervised from its lines and its exits alone, and never without a person."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

from policies.history import Incident
from supervisor.bench import nodes, plain_script
from supervisor.bench.proofs.runs import SMALL, relight, running, wait_asking, watch
from supervisor.bench.proofs.work import Work

ITERATIONS = 40
SECONDS = 0.15
SHAPE = replace(SMALL, warm=False)


def prove(work: Work) -> None:
    """A rank dies: the run asks, is told yes, and comes back; what is known of it is said to be limited."""
    command = (sys.executable, "-u", os.path.abspath(plain_script.__file__), str(ITERATIONS), str(SECONDS))
    with running(work, "plain", SHAPE, command=command) as run:
        run.wait_step(5)
        os.kill(nodes.rank_pid(run.run.root, 1, 0), signal.SIGKILL)
        status = wait_asking(run)
        history = run.history()
        work.check(f"in auto mode it asks: {status.held}", ok=history.mode == "auto" and "log lines" in status.held)
        watch(run, 2)
        work.check("and starts nothing before it is told", ok=run.attempt() == 1)
        answer = relight(run, "approve", "--plan", (history.decision_digest or "")[:6])
        work.check("an approval is taken", ok=answer.returncode == 0)
        code = run.wait_end(90)
        history = run.history()
        steps = run.frontier()
        story = relight(run, "explain", "1").stdout
    work.check(f"it comes back and ends: exit {code}, iteration {steps}", ok=code == 0 and steps == ITERATIONS)
    incident: Incident = history.incidents[0]
    good = len(history.incidents) == 1 and incident.closed and incident.times.next_good is not None
    work.check("one incident, closed by an update", ok=good)
    limited = [attempt.limited for attempt in history.attempts if attempt.accepted_at is not None]
    work.check("both attempts are accepted as limited", ok=limited == [True, True])
    work.check("the story says so", ok="limited" in story.lower() or "log lines" in story.lower())
    work.measured |= {"held": status.held, "story": story.splitlines()}
