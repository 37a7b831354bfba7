"""Read what the ranks of this node write: findings for the diagnosis, and steps of a run that does not speak to us."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from supervisor.evidence.iterations import Iteration, read_iteration
from supervisor.evidence.scan import scan
from supervisor.evidence.tail import Line, Tail

_CASCADE_EACH: Final = 1
_OTHERS_EACH: Final = 20
"""Findings of one kind that one rank may send: cascades repeat for minutes and say the same, roots are looked at."""

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


@dataclass(slots=True)
class _Followed:
    tail: Tail
    rank: int | None
    skipped: int = 0  # summed over the lines that were read


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
        self._speaks = speaks
        self._attempt = 0
        self._followed: dict[str, _Followed] = {}
        self._placed = False
        self.ranks: tuple[int, ...] = ()  # of this node in this attempt, once that is known
        self._sent: Counter[tuple[int | None, str]] = Counter()

    def attempt(self, attempt: int) -> None:
        """Follow this attempt from now on; the same again changes nothing."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._followed.clear()
            self._sent.clear()
            self._placed = False
            self.ranks = ()

    def watch(self, paths: Iterable[str]) -> None:
        """Follow these files too, wherever they lie (a site's own logs, the kernel's log)."""
        for path in paths:
            self._followed.setdefault(path, _Followed(Tail(path), None))

    def look(self, wall: float, monotonic: float) -> Heard:
        """What has been written since the last look."""
        if self._attempt and not self._placed:
            self._place()
        findings: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        for followed in self._followed.values():
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
        return Heard(tuple(findings), tuple(steps))

    def _place(self) -> None:
        ranks = ranks_here(self._run_dir, self._attempt, self._node)
        if ranks is None:
            return
        self._placed = True
        self.ranks = tuple(ranks)
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
        match = scan(line.text)
        if match is None or match.role == "benign":
            return None
        key = (followed.rank, match.kind)
        if self._sent[key] >= (_CASCADE_EACH if match.role == "cascade" else _OTHERS_EACH):
            return None
        self._sent[key] += 1
        # A line that is read late (the agent was started again) was written when the file was last changed, or before.
        late = wall - line.changed > 2 * self._poll_s
        when = min(wall, line.changed) if late else wall
        return {
            "attempt": self._attempt,
            "cycle": 0,
            "rank": followed.rank,
            "node": self._node,
            "file": os.path.relpath(followed.tail.path, self._run_dir)
            if followed.rank is not None
            else followed.tail.path,
            "line": line.number,
            "wall": when,
            "monotonic": monotonic - (wall - when),
            "offset_bound": self._poll_s,
            "kind": match.kind,
            "role": match.role,
            "category": match.category,
            "blames": match.blames,
            "text": match.text,
        }
