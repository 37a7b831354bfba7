"""The run's own command, started from the scratch store as a run of its own: does it load, and does it go on?

`python -m supervisor.drills.training RUN_DIR` supervises it, as `relight run` would.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from policies.facts import FaultClass, Phase
from policies.history import History
from policies.rules import Rules
from supervisor.errors import NotRestorable
from supervisor.fold import fold_all
from supervisor.journal import journal, requests
from supervisor.journal.requests import Request
from supervisor.profiles import load_profile
from supervisor.rundir import RunDir
from supervisor.settings import NotifySettings, Settings, freeze, frozen
from supervisor.telling.status import read_status

LOOK_S = 0.1
"""How often its files are looked at; a status is written at least once a second."""
END_S = 60.0
"""A controller that was asked to halt kills the ranks and ends; then it is killed."""
PAST_LOAD = frozenset({Phase.STEP, Phase.SAVE, Phase.EVALUATION, Phase.SHUTDOWN})


def prepare(scratch: RunDir, settings: Settings, store: str) -> None:
    """Make its run directory: the run's settings, another name, the scratch store, nobody told, nothing archived."""
    scratch.create()
    name = f"{settings.run.name}-drill"
    changes = {
        "run": settings.run.model_copy(update={"name": name}),
        "checkpoints": settings.checkpoints.model_copy(update={"dir": store}),
        "archive": settings.archive.model_copy(update={"place": ""}),
        "notify": NotifySettings(),
        "env": {**settings.env, "RELIGHT_DRILL": "1"},
    }
    freeze(scratch.root, settings.model_copy(update=changes))


@contextmanager
def supervised(scratch: RunDir) -> Iterator[subprocess.Popen[bytes]]:
    """A controller for it, which is asked to halt at the end; what it says goes to `drill.log`."""
    with open(scratch.path("drill.log"), "ab") as log:
        controller = subprocess.Popen(
            [sys.executable, "-m", "supervisor.drills.training", scratch.root],
            stdin=subprocess.PIPE,  # nothing is written: its end is ours
            stdout=log,
            stderr=log,
            env=os.environ | {"RELIGHT_LOG": "text"},
            start_new_session=True,
        )
    try:
        yield controller
    finally:
        _end(scratch, controller)


def await_part(
    scratch: RunDir, controller: subprocess.Popen[bytes], part: str, checkpoint: str, deadline_s: float
) -> float:
    """Wait for `launch`, `load` or `update`; the moment of it, wall seconds. Raises NotRestorable when it does not come."""
    until = time.time() + deadline_s
    while True:
        over = controller.poll() is not None
        history = fold_all(History(), journal.read(scratch.journal)) if os.path.isdir(scratch.journal) else History()
        _require_no_trouble(history, checkpoint)
        at = _moment(scratch, history, part)
        if at is not None:
            return at
        if over:
            raise NotRestorable(f"its controller ended with {controller.returncode} before {part}; see its log")
        if time.time() > until:
            raise NotRestorable(f"no {part} within {deadline_s:.0f} s")
        time.sleep(LOOK_S)


def _require_no_trouble(history: History, checkpoint: str) -> None:
    attempt = history.attempt
    if attempt is not None and attempt.checkpoint != checkpoint:
        raise NotRestorable(f"it was started from {attempt.checkpoint or 'nothing'}, not from {checkpoint}")
    if history.incidents:
        one = history.incidents[0]
        raise NotRestorable(f"{one.reason.value}: {one.trouble.text}")
    if history.halted is not None:
        raise NotRestorable(f"it halted: {history.halted.reason.value}: {history.halted.seen}")


def _moment(scratch: RunDir, history: History, part: str) -> float | None:
    attempt = history.attempt
    if attempt is None or part == "launch":
        return attempt.intended_at if attempt else None
    if part == "update":
        return attempt.accepted_at
    status = read_status(scratch)
    seen = status.view.attempt if status else None
    done = seen is not None and (seen.phase in PAST_LOAD or seen.first_step is not None)
    return status.at if status is not None and (done or attempt.accepted_at is not None) else None


def _end(scratch: RunDir, controller: subprocess.Popen[bytes]) -> None:
    if controller.poll() is None:
        _halt(scratch, "the drill is over")
        try:
            controller.wait(END_S)
        except subprocess.TimeoutExpired:
            controller.kill()
            controller.wait()
    if controller.stdin is not None:
        controller.stdin.close()


def _halt(scratch: RunDir, why: str) -> None:
    now = time.time()
    requests.file(scratch.root, Request(id=requests.new_id(now), what="halt", who="relight drill", at=now, why=why))


def _halt_when_alone(scratch: RunDir) -> None:
    """Whoever has begun the drill holds the other end of our stdin, and lets it go however it ends: nobody waits for us then."""
    while os.read(0, 4096):
        pass
    _halt(scratch, "whoever began the drill is gone")


def rules() -> Rules:
    """Nobody is asked, nothing is held: what fails ends the drill."""
    return load_profile("auto").model_copy(update={"cleared": frozenset(FaultClass), "hold_s": 0.0})


def main(root: str) -> int:
    """Supervise the drill's run; the exit code."""
    from supervisor import app  # noqa: PLC0415 - the composition root, for the process that is one

    run = RunDir(os.path.abspath(root))
    app.log_to_stderr()
    Thread(target=_halt_when_alone, args=(run,), name="relight-drill-alone", daemon=True).start()
    return app.supervise(app.build(run, frozen(run.root), rules()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
