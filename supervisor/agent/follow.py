"""Read what the ranks of this node write: findings for the diagnosis, and steps of a run that does not speak to us."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from supervisor.evidence.iterations import Iteration, read_iteration
from supervisor.evidence.scan import Match, Scanner
from supervisor.evidence.stamps import read_stamp, with_year
from supervisor.evidence.tail import Follows, Line, Tail, follow

_CASCADE_EACH: Final = 1
_OTHERS_EACH: Final = 20
"""Findings of one kind that one rank may send: cascades repeat for minutes and say the same, roots are looked at."""

_BEFORE_S: Final = 2.0
"""A line of the machine's log that is older than the attempt by more than this belongs to an earlier one."""

_UNTOLD: Final = ("layout-", "activity-")
"""Kinds of lines that only say where ranks are and what they do: the ranks tell that themselves."""

_MAP: Final = 4 << 20
"""Bytes of launch.json that are read; 640 slots need about 20 kB."""


def ranks_here(run_dir: str, attempt: int, node: str) -> list[int] | None:
    """The ranks that launch.json places on this node (none for a hot spare); None when it is not there or not right."""
    try:
        with open(os.path.join(run_dir, "attempts", f"{attempt:04d}", "launch.json"), "rb") as file:
            record = json.loads(file.read(_MAP))
    except (OSError, ValueError, RecursionError):
        return None
    slots = record.get("slots") if isinstance(record, dict) else None
    each = record.get("ranks_per_node") if isinstance(record, dict) else None
    if not isinstance(slots, list) or type(each) is not int or not 1 <= each <= 1024:
        return None
    return [slot * each + local for slot, name in enumerate(slots) if name == node for local in range(each)]


def _changed(path: str) -> float:
    """Wall seconds of the last change of a file; 0 when it can't be asked."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


@dataclass(slots=True)
class _Followed:
    tail: Follows
    rank: int | None  # None: a log of the machine
    skipped: int = 0  # summed over the lines that were read
    source: str = "log"


@dataclass(frozen=True, slots=True)
class Heard:
    """What the logs gave: findings, and steps as if the rank had sent them."""

    findings: tuple[dict[str, Any], ...] = ()
    steps: tuple[dict[str, Any], ...] = ()


class Follower:
    """Follows the logs of one attempt on one node. `speaks(rank)`: the rank sends its own steps."""

    def __init__(self, run_dir: str, node: str, poll_s: float, speaks: Callable[[int, int], bool]) -> None:
        self._run_dir = run_dir
        self._node = node
        self._poll_s = poll_s
        self._looked: float | None = None  # monotonic: when the logs were last looked at
        self._since = poll_s  # seconds since the look before
        self._speaks = speaks
        self._attempt = 0
        self._followed: dict[str, _Followed] = {}
        self._scanner = Scanner()
        self._placed = False
        self._was_placed = False  # in any attempt
        self.ranks: tuple[int, ...] = ()  # of this node in this attempt, once that is known
        self._began = 0.0  # wall seconds, by this machine: when the attempt was launched
        self._sent: Counter[tuple[int | None, str]] = Counter()

    def attempt(self, attempt: int) -> None:
        """Follow this attempt from now on; the same again changes nothing."""
        if attempt != self._attempt:
            self._attempt = attempt
            # The machine's own logs go on over attempts; what they had to say of the last one has been said.
            self._followed = {path: one for path, one in self._followed.items() if one.rank is None}
            self._sent.clear()
            self._began = 0.0
            self._placed = False
            self.ranks = ()

    def watch(self, paths: Iterable[str]) -> None:
        """Follow these files too, wherever they lie (a site's own logs, the kernel's log)."""
        for path in paths:
            if path not in self._followed:
                self._followed[path] = _Followed(follow(path), None)

    def listen(self, kernel: Follows) -> None:
        """Follow the kernel's own log too."""
        self._followed.setdefault(kernel.path, _Followed(kernel, None, source="kernel"))

    def look(self, wall: float, monotonic: float) -> Heard:
        """What has been written since the last look."""
        self._since = max(self._poll_s, monotonic - self._looked) if self._looked is not None else self._poll_s
        self._looked = monotonic
        if self._attempt and not self._placed:
            self._place()
        findings: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        for followed in self._followed.values():
            if followed.source == "kernel" and not self._was_placed:
                continue  # which of its lines are of the attempt can't be told yet; they are kept where they are
            for line in followed.tail.look():
                iteration = read_iteration(line.text)
                if iteration is not None:
                    if followed.rank is not None and not self._speaks(followed.rank, self._attempt):
                        steps.append(self._step(followed, followed.rank, iteration, wall, monotonic))
                    if not iteration.non_finite:
                        continue
                finding = self._finding(followed, line, wall, monotonic)
                if finding is not None:
                    findings.append(finding)
            findings.extend(self._lost(followed, what, wall, monotonic) for what in followed.tail.losses())
        return Heard(tuple(findings), tuple(steps))

    def _place(self) -> None:
        ranks = ranks_here(self._run_dir, self._attempt, self._node)
        if ranks is None:
            return
        self._placed = self._was_placed = True
        self.ranks = tuple(ranks)
        self._began = _changed(os.path.join(self._run_dir, "attempts", f"{self._attempt:04d}", "launch.json"))
        folder = os.path.join(self._run_dir, "attempts", f"{self._attempt:04d}", "logs")
        for rank in ranks:
            path = os.path.join(folder, f"rank_{rank:05d}.log")
            self._followed[path] = _Followed(Tail(path), rank)

    def _step(self, followed: _Followed, rank: int, row: Iteration, wall: float, monotonic: float) -> dict[str, Any]:
        followed.skipped += row.skipped
        message = {
            "k": "step",
            "r": rank,
            "a": self._attempt,
            "t": wall,
            "m": monotonic,
            "from_log": True,
            "step": row.step,
            "samples": row.samples,
            "updates": max(0, row.step - followed.skipped),
            "skipped": followed.skipped,
            "loss": row.loss,
            "lr": row.lr,
            "grad_norm": row.grad_norm,
            "seconds": row.seconds,
        }
        return {**message, "non_finite": True} if row.non_finite else message

    def _finding(self, followed: _Followed, line: Line, wall: float, monotonic: float) -> dict[str, Any] | None:
        match = self._scanner.scan(line.text)
        if match is None or match.role == "benign" or match.kind.startswith(_UNTOLD) or match.kind == "finished":
            return None
        key = (followed.rank, match.kind)
        if self._sent[key] >= (_CASCADE_EACH if match.role == "cascade" else _OTHERS_EACH):
            return None
        # A line that is read late (the agent was started again) was written when the file was last changed, or before;
        # any other one since the last look.
        late = wall - line.changed > 2 * self._poll_s
        half = self._since / 2
        when, bound = (min(wall, line.changed), self._poll_s) if late else (wall - half, half)
        rank = followed.rank
        if rank is None:
            told = _machine_time(line, wall, monotonic)
            if told is not None:
                # A stamp of whole seconds is that of any moment within its second.
                half = 0.5 if told == int(told) else 0.0
                when, bound = min(wall, told + half), self._poll_s + half
            if when - line.bound < self._began - _BEFORE_S or (told is None and late):
                return None
            if followed.source == "kernel" and not self._placed:
                return None  # between two attempts
            rank = self._rank_of(match.pid)
        self._sent[key] += 1
        told_at = self._told(followed, match, rank, line.number, when, monotonic - (wall - when))
        return {**told_at, "offset_bound": bound + line.bound}

    def _told(
        self, followed: _Followed, match: Match, rank: int | None, number: int | None, when: float, monotonic: float
    ) -> dict[str, Any]:
        path = followed.tail.path
        # What a launcher says of an exit is weaker than the exit's own record, which comes anyway. And the kernel of a
        # node without ranks tells of that node, not of why the run stopped.
        weak = match.grade == 1 or (followed.source == "kernel" and not self.ranks)
        return {
            "attempt": self._attempt,
            "cycle": 0,
            "rank": rank,
            "node": self._node,
            "file": os.path.relpath(path, self._run_dir) if followed.rank is not None else path,
            "line": number,
            "wall": when,
            "monotonic": monotonic,
            "offset_bound": self._poll_s,
            "kind": match.kind,
            "role": "context" if match.role == "root" and weak else match.role,
            "category": match.category,
            "blames": match.blames,
            "text": match.text,
            "source": followed.source,
            "grade": match.grade,
            "restart": match.restart,
            "peer": match.peer,
            "seq": match.seq,
            "op": match.op,
        }

    def _lost(self, followed: _Followed, what: str, wall: float, monotonic: float) -> dict[str, Any]:
        """A log that was rotated, cut short or overrun: the diagnosis must not take its silence for health."""
        match = Match("log-lost", "context", "none", "nobody", f"{followed.tail.path}: {what}")
        return self._told(followed, match, followed.rank, None, wall, monotonic)

    def _rank_of(self, pid: int | None) -> int | None:
        """The rank of this node that has this process id, by the shims' records; None when none has."""
        if pid is None:
            return None
        folder = os.path.join(self._run_dir, "attempts", f"{self._attempt:04d}", "pids")
        for rank in self.ranks:
            try:
                with open(os.path.join(folder, f"rank_{rank:05d}.json"), "rb") as file:
                    record = json.loads(file.read(4096))
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(record, dict) and record.get("pid") == pid:
                return rank
        return None


def _machine_time(line: Line, wall: float, monotonic: float) -> float | None:
    """When a line of the machine's own log was written, by this machine's clocks: wall seconds, None when it does not say."""
    if line.wall is not None:
        return line.wall
    if line.since_boot is not None:
        return wall - (monotonic - line.since_boot)
    stamp = read_stamp(line.text)
    if stamp is None:
        return None
    at = with_year(stamp, wall)
    return at if stamp.zone else at - time.localtime(wall).tm_gmtoff
