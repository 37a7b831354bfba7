"""Does a crowd at the console slow the loop? The same controller with 640 agents, alone and then with all of it.

Asked for: 640 agents that report every 2 s, 20 viewers and a flood of bad requests for 2 minutes: no report is lost, and the
loop's turns (p99) take at most twice as long as without. Everything runs on this machine; those who look and those who
flood are nice 10, as if they were elsewhere.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Any, Final

from policies.history import History
from supervisor.bench.figure import Figure
from supervisor.console import tokens
from supervisor.fold import fold_all
from supervisor.journal import journal
from supervisor.rundir import RunDir
from supervisor.step_rows import read_rows

SLOTS: Final = 640
BEAT_S: Final = 2.0
VIEWERS: Final = 20
FLOOD: Final = 8
STREAMS_A_TOKEN: Final = 5
SETTLE_S: Final = 5.0
"""The start of 5,120 ranks is no part of either window."""
WINDOW_S: Final = 120.0
LIMIT: Final = 2.0
MODULE: Final = "supervisor.bench.crowd"


def figures(folder: str, say: Callable[[str], None], window_s: float = WINDOW_S, slots: int = SLOTS) -> list[Figure]:
    """Measure both in one run of `folder`. Raises RuntimeError when a process of it fails."""
    root = os.path.join(folder, "crowd")
    with ExitStack() as stack:
        stage = _start(stack, ["stage", root, str(slots)])
        _until(lambda: os.path.exists(os.path.join(root, "endpoint.json")), "the controller listens")
        agents = _start(stack, ["agents", root, str(slots), str(BEAT_S)])
        for wanted in ("connected", "running"):
            _line(agents, wanted)
        time.sleep(SETTLE_S)
        say(f"a run of {slots} nodes goes on; {window_s:.0f} s alone")
        alone = _window(window_s)
        console, port, given = _console(stack, root)
        visitors = _start(stack, ["visitors", str(port), "crowd", str(VIEWERS), str(FLOOD)], nice=10)
        for i in range(VIEWERS):
            _write(visitors, given[i // STREAMS_A_TOKEN])
        _line(visitors, "looking")
        say(f"with {VIEWERS} viewers and a flood of bad requests: {window_s:.0f} s")
        beside = _window(window_s)
        seen = _end(visitors)
        if console.poll() is not None:
            raise RuntimeError("the console has ended")
        sent = _end(agents)
        time.sleep(1.0)  # what was sent is heard and written within one more turn
        turns = _end(stage)
    run = RunDir(root)
    heard = len({row.step for row in read_rows(run, 1)})
    require_calls(seen)
    history = fold_all(History(), journal.read(run.journal))
    if history.incidents or not history.attempts:
        # A node whose beats were lost would have been taken for a silent one.
        raise RuntimeError(f"the run has {len(history.attempts)} attempts and {len(history.incidents)} incidents")
    return told(turns, alone, beside, sent, heard, seen)


def told(
    turns: list[list[float]],
    alone: tuple[float, float],
    beside: tuple[float, float],
    sent: dict[str, int],
    heard: int,
    seen: dict[str, Any],
) -> list[Figure]:
    """Pure: from what the processes said to figures."""
    quiet, loud = (_quantile([s for at, s in turns if w[0] <= at <= w[1]], 0.99) * 1e3 for w in (alone, beside))
    answers = {status: float(n) for status, n in sorted(seen["got"].items())}
    return [
        Figure("a turn of the loop (p99) while the console is flooded, of one without", loud / quiet, "x", LIMIT,
               {"alone ms": quiet, "flooded ms": loud, "turns": float(len(turns))}),
        Figure("step rows lost meanwhile", float(sent["rows"] - heard), "rows", 0.0,
               {"sent": float(sent["rows"]), "beats": float(sent["beats"])}),
        Figure("answers of the console meanwhile", float(sum(seen["got"].values())), "answers", None,
               answers | {"events told": float(seen["events"])}),
    ]  # fmt: skip


def require_calls(seen: dict[str, Any]) -> None:
    """The load was there: pages were answered, and bad requests were refused. Raises RuntimeError."""
    got = seen["got"]
    if not got.get("200") or not seen["events"]:
        raise RuntimeError(f"no page was answered: {got}, {seen['events']} events")
    if not got.get("401"):
        raise RuntimeError(f"no bad request was refused: {got}")


def _console(stack: ExitStack, root: str) -> tuple[subprocess.Popen[str], int, list[str]]:
    """`relight console` on loopback, and tokens of viewers for it."""
    grants = os.path.join(root, "tokens.json")
    given = [
        tokens.add(grants, f"viewer{i}", tokens.Role.VIEWER, time.time()) for i in range(-(-VIEWERS // STREAMS_A_TOKEN))
    ]
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    argv = [sys.executable, "-m", "supervisor", "console", root, "--listen", f"127.0.0.1:{port}"]
    console = subprocess.Popen(
        [*argv, "--tokens", grants, "--audit", os.path.join(root, "audit.jsonl")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(_kill, console)
    _line(console, "relight console")
    return console, port, given


def _start(stack: ExitStack, words: list[str], nice: int = 0) -> subprocess.Popen[str]:
    argv = [*(["nice", f"-n{nice}"] if nice else []), sys.executable, "-m", f"{MODULE}.{words[0]}", *words[1:]]
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"RELIGHT_LOG": "text"}
    )
    stack.callback(_kill, child)
    return child


def _kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()


def _line(child: subprocess.Popen[str], wanted: str) -> None:
    line = _out(child).readline()
    if not line.startswith(wanted):
        raise RuntimeError(f"{child.args!r} said {line!r}, not {wanted!r}")


def _write(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None  # noqa: S101 - a pipe was asked for
    child.stdin.write(line + "\n")
    child.stdin.flush()


def _out(child: subprocess.Popen[str]) -> IO[str]:
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    return child.stdout


def _end(child: subprocess.Popen[str]) -> Any:
    """Ask a process to end; what it says of itself."""
    told, _ = child.communicate("\n", timeout=60)
    return json.loads(told.strip().rsplit("\n", 1)[-1])


def _until(look: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def _window(seconds: float) -> tuple[float, float]:
    """The window of the measurement itself."""
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
