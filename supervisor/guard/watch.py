"""The guard: a process that needs nothing of the controller's, looks at runs from outside, and pages. One a run and host."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Event

import structlog

from supervisor.durable import show_whole
from supervisor.errors import UserError
from supervisor.guard.judge import Memory, judge
from supervisor.guard.looking import Eye, Looker
from supervisor.rundir import RunDir
from supervisor.telling import carrying
from supervisor.telling.courier import Courier
from supervisor.telling.heart import Heart
from supervisor.telling.targets import Targets

EVERY_S = 5.0
GIVE_UP_S = 3600.0
"""So long a run directory may be away before nobody waits for it any more: it was said, and a run that was deleted stays so."""


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:64]


class Lock:
    """This host's guard of a run; the system lets it go when the process ends."""

    def __init__(self, root: str) -> None:
        """Raises BlockingIOError when another guard on this host has it, OSError."""
        self._file = open(os.path.join(root, f"guard-{_host()}.lock"), "ab")  # noqa: SIM115 - held as long as we live
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise

    def close(self) -> None:
        """Let it go."""
        self._file.close()


class Ward:
    """One run that is guarded."""

    def __init__(self, root: str, name: str, targets: Targets, looker: Looker, clock: Callable[[], float]) -> None:
        self.root, self.name = root, name
        self.targets = targets
        self._clock = clock
        self.looker = looker
        self.courier = Courier(targets, lambda: None)
        self.memory = replace(Memory(clock()), said=_said_before(root))
        self.over = False

    def once(self) -> None:
        """Judge what was seen last, and say what is to be said."""
        look = self.looker.newest()
        if look is None:
            return
        now = self._clock()
        self.over = look.over
        before = self.memory.said
        self.memory, notices = judge(self.name, look, self.memory, now)
        for notice in notices:
            structlog.get_logger().warning("guard", text=notice.text)
            self.courier.send(notice, "")
        if self.memory.said != before:
            _keep_said(self.root, self.memory.said)
        gone_at = self.memory.since.get("run-directory-gone")
        if gone_at is not None and now - gone_at > GIVE_UP_S:
            self.over = True


def _said_before(root: str) -> frozenset[str]:
    """What an earlier guard of this host has said and was not over: it is not said again."""
    try:
        with open(os.path.join(root, f"guard-{_host()}.json"), "rb") as file:
            return frozenset(str(one) for one in json.loads(file.read(65_536))["said"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _keep_said(root: str, said: frozenset[str]) -> None:
    with suppress(OSError):  # the disk may be what is wrong
        show_whole(
            os.path.join(root, f"guard-{_host()}.json"), json.dumps({"schema": 1, "said": sorted(said)}).encode()
        )


def guard(wards: list[Ward], stop: Event, every_s: float = EVERY_S) -> None:
    """Watch until every run is over or `stop` is set."""
    hearts = [
        Heart(one.targets.heartbeat_s, lambda: "", lambda one=one: _beat(one.targets))  # type: ignore[misc]
        for one in wards
        if one.targets.guard_heartbeat_url
    ]
    for heart in hearts:
        heart.start()
    while wards and not stop.is_set():
        for one in wards:
            one.once()
        for one in [w for w in wards if w.over]:
            structlog.get_logger().info("guard-over", run=one.name)
            one.looker.stop()
            one.courier.wait(one.targets.deadline_s)
        wards = [one for one in wards if not one.over]
        for heart in hearts:
            heart.ticked()
        if wards:
            stop.wait(every_s)


def _beat(targets: Targets) -> carrying.Outcome:
    return carrying.fetch(targets.guard_heartbeat_url, targets.deadline_s)


def ward_of(run: RunDir, name: str, targets: Targets, *, probes: bool, every_s: float = EVERY_S) -> Ward:
    """A real one."""
    return Ward(run.root, name, targets, Looker(Eye(run.root, probes=probes), every_s), time.monotonic)


def start(root: str) -> None:
    """Start a guard of a run that outlives us, with guard.log in the run directory. Raises UserError."""
    argv = [sys.executable, "-m", "supervisor", "guard", root, "--detach"]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{root}: the guard can't be started: {error}") from None


def detach(argv: list[str], log: str) -> None:
    """Start a command in a session of its own, with a log; nobody waits for it. Raises OSError."""
    with open(log, "ab") as file:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    child.returncode = 0  # it is not ours to wait for
