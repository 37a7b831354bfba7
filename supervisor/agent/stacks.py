"""Keep what the ranks of this node are doing, before anything is killed: stacks, process state, ends of their logs.

py-spy 0.4 reads stacks from outside. It hangs on a stopped process unless it is told not to block (measured).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from slurm.processes import look
from supervisor.durable import show_whole
from supervisor.evidence.stacks import read_stack

LOG_TAIL: Final = 64 << 10
"""Bytes of each rank's log that are kept."""

_AT_ONCE: Final = 8
_OUTPUT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """One rank of this node; `pid` None: it is not known."""

    rank: int
    pid: int | None


@dataclass(frozen=True, slots=True)
class Kept:
    """How the capture of one rank went: `said` is "ok" (its stack is kept) or "unknown: why".

    `waits_in` and `top` as in `evidence.stacks`, empty where nothing was read; `stopped`: the process stood still.
    """

    said: str
    waits_in: str = ""
    top: str = ""
    stopped: bool = False


def find_py_spy() -> str | None:
    """Return the py-spy beside this interpreter, else the one in PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def keep_evidence(
    run_dir: str, attempt: int, node: str, targets: Iterable[Target], deadline_s: float, py_spy: str | None
) -> dict[str, Kept]:
    """Write `attempts/NNNN/evidence/NODE/rank_NNNNN.{stack,log}` for each target; blocks up to `deadline_s` seconds."""
    until = time.monotonic() + deadline_s
    base = os.path.join(run_dir, "attempts", f"{attempt:04d}")
    folder = os.path.join(base, "evidence", node)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        return {str(target.rank): Kept(f"unknown: {error.strerror}: {folder}") for target in targets}

    def keep(target: Target) -> tuple[str, Kept]:
        name = f"rank_{target.rank:05d}"
        verdict = _keep_stack(os.path.join(folder, f"{name}.stack"), target.pid, until, py_spy)
        _keep_tail(os.path.join(base, "logs", f"{name}.log"), os.path.join(folder, f"{name}.log"))
        return str(target.rank), verdict

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(pool.map(keep, targets))


def _keep_stack(path: str, pid: int | None, until: float, py_spy: str | None) -> Kept:
    if pid is None:
        return Kept("unknown: no process is known for this rank")
    process = look(pid)
    if process is None:
        return Kept(f"unknown: process {pid} has ended")
    head = f"# pid {pid}, state {process.state}, in the kernel: {_read(f'/proc/{pid}/wchan') or '-'}\n"
    stack, why = _dump(pid, process.state, until, py_spy)
    try:
        show_whole(path, head.encode() + (stack or f"# {why}\n".encode()))
    except OSError as error:
        return Kept(f"unknown: {error.strerror}: {path}")
    waits_in, top = (read_stack(stack.decode("utf-8", "replace")) if stack else None) or ("", "")
    return Kept("ok" if stack else f"unknown: {why}", waits_in, top, process.state in "Tt")


def _dump(pid: int, state: str, until: float, py_spy: str | None) -> tuple[bytes, str]:
    """The stacks of all threads as text, or nothing and why."""
    left = until - time.monotonic()
    if py_spy is None:
        return b"", "py-spy is not installed"
    if left <= 0:
        return b"", "the deadline has passed"
    # A stopped process, and one in an uninterruptible call, can't be paused: read it as it stands.
    command = [py_spy, "dump", "--pid", str(pid), *(["--nonblocking"] if state in "TtD" else [])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=left, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return b"", f"py-spy took longer than {left:.1f} s"
    except OSError as error:
        return b"", f"py-spy: {error.strerror}"
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return b"", f"py-spy: {' / '.join(last)[:200] or f'exit {done.returncode}'}"
    return done.stdout[:_OUTPUT], ""


def _keep_tail(source: str, target: str) -> None:
    """Keep the end of a log; a rank that has none leaves none."""
    try:
        with open(source, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL))
            data = file.read(LOG_TAIL)
        show_whole(target, data)
    except OSError:
        return


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(256).strip()
    except OSError:
        return ""
