"""The processes of this machine as /proc shows them: who is alive, who belongs to a session, and how to end them.

A pid alone proves nothing, for it is used again. A process is named by its pid and its start time in clock ticks;
a session's number cannot be used again while one process of it lives.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One living process; `start_ticks` is field 22 of /proc/PID/stat (proc(5)), clock ticks since the boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def pid_space() -> str:
    """Which numbering of processes we see (a container has its own); empty where the kernel does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def look(pid: int) -> Process | None:
    """The process as it is now, or None when there is none. A zombie is dead: it does nothing any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold blanks and brackets itself: what counts begins behind the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    if state in "ZX":
        return None
    return Process(pid, state, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def alive(pid: int, start_ticks: int) -> bool:
    """Is this the very process that was seen before?"""
    found = look(pid)
    return found is not None and found.start_ticks == start_ticks


def members(session: int) -> list[Process]:
    """Every living process of a session, and what they have started in sessions of its own (`setsid`, a daemon)."""
    looks = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    found = {process.pid: process for process in looks if process is not None}
    children: dict[int, list[Process]] = {}
    for process in found.values():
        children.setdefault(process.parent, []).append(process)
    ours = {pid: process for pid, process in found.items() if process.session == session}
    fresh = list(ours)
    while fresh:
        begun = [child for child in children.get(fresh.pop(), ()) if child.pid not in ours]
        ours |= {child.pid: child for child in begun}
        fresh += [child.pid for child in begun]
    return list(ours.values())


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty when it is gone or not ours to read."""
    pairs = _environ(pid).split(b"\0")
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)


def holds(pid: int, wanted: Mapping[str, str]) -> bool:
    """Was the process started with all of these variables?"""
    found = b"\0" + _environ(pid)  # searched as it is: every process of the machine may be asked
    return all(os.fsencode(f"\0{key}={value}\0") in found for key, value in wanted.items())


def _environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each; one that is gone already needs none."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_gone(pids: Iterable[int], deadline_s: float) -> bool:
    """Wait until all of them have ended; False when the deadline (seconds from now) comes first."""
    until = time.monotonic() + deadline_s
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
        finally:
            os.close(handle)
    return True


def of_node(leader: int, start_ticks: int, name: str, run_dir: str) -> list[int]:
    """Every living process of a local node's session, its daemon (the leader) included, as pids.

    When the leader is gone its number may by now name a session of somebody else, so one member has to carry our
    node and run in its environment.
    """
    found = members(leader)
    mark = {"RELIGHT_NODE": name, "RELIGHT_RUN_DIR": run_dir}
    ours = alive(leader, start_ticks) or any(holds(process.pid, mark) for process in found)
    return [process.pid for process in found] if ours else []


def end_node(leader: int, start_ticks: int, name: str, run_dir: str, deadline_s: float) -> bool:
    """Kill every process of a local node, stopped ones too, until none is left; False when the deadline comes first."""
    until = time.monotonic() + deadline_s
    while left := of_node(leader, start_ticks, name, run_dir):
        send(left, signal.SIGKILL)
        if not wait_gone(left, until - time.monotonic()):
            return False
    return True
