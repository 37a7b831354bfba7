"""Which errors a job has survived: they were not what ended it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from policies.clues import Clue
from supervisor.evidence.clocks import SYNCED_S, UNTIED_S, Clocks, is_kernel, stepped_from
from supervisor.evidence.places import Places
from supervisor.evidence.reading import FileReading
from supervisor.evidence.stamps import with_year

RECOVERY: Final = 20
"""Lines within which a client that got its answer after all speaks of what stands above it."""

REPORT: Final = 6
"""Lines in which the kernel tells what a machine check was."""

_SEVERE: Final = re.compile(
    r"uncorrect|fatal|panic|exception|\bUE\b|corrupt|recoverable|Bank \d+: [abef][0-9a-f]{15}", re.IGNORECASE
)
"""Words, and a status with bit 61, of an error that was not corrected."""


def survivors(clues: list[Clue], readings: Sequence[FileReading], clocks: Clocks, places: Places) -> list[Clue]:
    """Mark the clues after which training went on for two steps or more: they were not what ended it."""
    later: dict[str | None, list[float]] = {}  # by the node whose clock it is
    lines: dict[str, list[int]] = {}
    for reading in readings:
        if is_kernel(reading):
            continue
        clock = clocks.of_file[reading.name]
        jump_line = stepped_from(reading, clock, clocks.near)
        good = [m for m in reading.marks if m.finite]
        lines[reading.name] = sorted({m.line for m in good})
        node = None if reading.name in clocks.tied else places.node_of_file.get(reading.name)
        for mark in good:
            if mark.stamp is not None:
                at = with_year(mark.stamp, clocks.near) + clock.shift
                at += clock.jump if jump_line is not None and mark.line >= jump_line else 0.0
                later.setdefault(node, []).append(at)
    for times in later.values():
        times.sort()
    out = []
    ends = {c.file: c.line for c in clues if c.kind == "finished"}
    words = sorted((c for c in clues if c.kind in ("node-back", "node-failure")), key=lambda c: c.line)
    over = {(c.file, c.line) for c in clues if c.kind in ("recovered", "batch-resized")}
    mended = {(c.file, c.line) for c in clues if c.kind == "memory-corrected"}
    for clue in clues:
        survived = clue.survived or _recovered(clue, over) or _started_anew(clue, lines.get(clue.file, []), ends)
        survived = survived or _corrected(clue, mended)
        survived = survived or (clue.kind == "node-unanswering" and _answers_again(clue, words))
        if clue.role != "benign" and not clue.category.startswith("scheduler."):
            own = lines.get(clue.file, [])
            survived = survived or len(own) - bisect_right(own, clue.line) >= 2
            if clue.latest is not None and clue.earliest is not None and clue.latest - clue.earliest < 60:
                after = {
                    round(t)
                    for node, times in later.items()
                    for t in times[bisect_right(times, clue.latest + _apart(node, clue.node)) :]
                }
                survived = survived or len(after) >= 2
            if clocks.start is not None and clue.latest is not None and clue.latest < clocks.start - 30:
                survived = True  # before this job: it belongs to an earlier one
        out.append(replace(clue, survived=survived) if survived else clue)
    return out


def _recovered(clue: Clue, over: Collection[tuple[str, int]]) -> bool:
    """Did the client that tells of an error tell of its success in the next lines?"""
    if not clue.category.startswith(("storage.", "data", "oom.gpu")) or clue.role != "root":
        return False
    return any((clue.file, clue.line + behind) in over for behind in range(1, RECOVERY))


def _corrected(clue: Clue, mended: Collection[tuple[str, int]]) -> bool:
    """Is this a line of the kernel's report of an error that the same report calls corrected?"""
    told = clue.kind in ("machine-check", "machine-check-logged") and not _SEVERE.search(clue.text)
    return told and any((clue.file, clue.line + behind) in mended for behind in range(-REPORT, REPORT))


def _answers_again(clue: Clue, words: Sequence[Clue]) -> bool:
    """Is the next word of the same log on a node that did not answer that it does, and not that it was given up?"""
    later = [c for c in words if c.file == clue.file and c.line > clue.line and c.peer == clue.peer]
    return bool(later) and later[0].kind == "node-back"


def _started_anew(clue: Clue, steps: Sequence[int], ends: Mapping[str, int]) -> bool:
    """Did the job that Slurm ended here go on in the same log, and reach its end there?"""
    end = ends.get(clue.file, 0)
    return clue.category.startswith("scheduler.") and bisect_right(steps, end) - bisect_right(steps, clue.line) >= 2


def _apart(node: str | None, other: str | None) -> float:
    """Seconds by which a step must be later than an error, by the clocks of these two machines; None is not known."""
    return SYNCED_S if node is None or other is None or node == other else UNTIED_S
