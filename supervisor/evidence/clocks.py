"""Every file's clock against the common one: zones, missing years, shared steps, clocks that were set. Pure.

What cannot be known is a bound, never a guess: two lines whose bounds overlap stay unordered.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from supervisor.evidence.reading import FileReading
from supervisor.evidence.stamps import Stamp, read_stamp, with_year

SYNCED_S: Final = 1.0
"""Bound on two clocks of which nothing is known but that both are kept by NTP (hosts of a cluster: 10 ms and better)."""

SHIFTED_S: Final = 3.0
STEADY_S: Final = 0.5
"""A shift between shared step lines that is larger than this is a clock's, not a slow writer's; the smaller number where
three steps or more agree on it, for a writer is not slow by the same time thrice.
"""

UNTIED_S: Final = 300.0
"""Bound on the clocks of two machines where nothing in the logs ties them and much depends on it."""

OPENINGS_S: Final = 60.0
"""Launchers that start together print their first lines well within this."""

HOUR: Final = 3600.0
_KERNEL_NAME: Final = re.compile(
    r"journal|dmesg|messages|kern|kmsg|syslog|fabric-?manager|(^|[-_./])(slurmd|slurmctld|sel|ipmi|bmc|nhc|mcelog|opensm)([-_.]|$)",
    re.IGNORECASE,
)
_CONSOLE_NAME: Final = re.compile(r"(^|[-_./])(console|serial|conman|ipmi-?sol|sol)([-_.]|$)", re.IGNORECASE)

UNTOLD_S: Final = 1800.0
"""How long before the first dated line a job that dates none but its errors may have been under way, besides SLACK_S."""

SLACK_S: Final = 300.0


@dataclass(slots=True)
class Clock:
    """How one file's stamps become common time: add `shift`, then give or take `bound`; from `jump_line` on also `jump`."""

    shift: float = 0.0
    bound: float = SYNCED_S
    jump_after: float | None = None  # file time (before the shift) of the last stamp before the clock was set
    jump: float = 0.0
    note: str = ""
    boot: float | None = None  # common time at which the kernel's own clock was 0


@dataclass(slots=True)
class Clocks:
    """The clocks of all files, the year, and the span of the job by its training logs."""

    near: float
    of_file: dict[str, Clock] = field(default_factory=dict)
    start: float | None = None
    end: float | None = None
    notes: list[str] = field(default_factory=list)
    tied: set[str] = field(default_factory=set)  # files whose clocks have been compared by shared steps

    def span(
        self, stamp: Stamp | None, file: str, *, stepped: bool = False, since_boot: float | None = None
    ) -> tuple[float, float] | None:
        """Common time of a stamp, or of a kernel's own clock, as (earliest, latest)."""
        clock = self.of_file.get(file, Clock())
        if stamp is None and since_boot is not None and clock.boot is not None:
            return clock.boot + since_boot - 2.0, clock.boot + since_boot + 2.0
        if stamp is None:
            return None
        at = with_year(stamp, self.near) + clock.shift + (clock.jump if stepped else 0.0)
        return at - clock.bound, at + clock.bound + (0.0 if stamp.fraction else 1.0)


def is_kernel(reading: FileReading) -> bool:
    """A log of the machine, not of the training: by its name. A console is also what some call the output of a job."""
    return bool(_KERNEL_NAME.search(reading.name) or (_CONSOLE_NAME.search(reading.name) and not reading.marks))


def _stamps(reading: FileReading) -> list[Stamp]:
    found = [raw.stamp for raw in reading.raws if raw.stamp] + [mark.stamp for mark in reading.marks if mark.stamp]
    found += [stamp for raw in reading.raws if raw.stamp is None for stamp in (raw.before, raw.after) if stamp]
    return [*found, reading.first] if reading.first else found


def measure(readings: Sequence[FileReading], node_of_file: Mapping[str, str], zones: Mapping[str, float]) -> Clocks:
    """The clocks of the files. `zones`: seconds to add to a file's stamps, where somebody has told."""
    every = {reading.name: _stamps(reading) for reading in readings}
    dated = [stamp.at for stamps in every.values() for stamp in stamps if stamp.year]
    clocks = Clocks(near=median(dated) if dated else max((r.mtime for r in readings), default=0.0))
    for reading in readings:
        clocks.of_file[reading.name] = Clock(shift=zones.get(reading.name, 0.0))
    _shared_steps(readings, node_of_file, clocks)
    _same_openings(readings, clocks)
    _boots(readings, clocks)
    training = [
        with_year(stamp, clocks.near) + clocks.of_file[r.name].shift
        for r in readings
        if not is_kernel(r)
        for stamp in every[r.name]
    ]
    if training:
        clocks.start, clocks.end = min(training), max(training)
        if not any(_dates_its_opening(reading) for reading in readings if not is_kernel(reading)):
            clocks.start = _began(readings, clocks.start, clocks)
    for reading in readings:
        if is_kernel(reading) and reading.name not in zones:
            _zone(reading, every[reading.name], clocks, node_of_file)
    _set_clocks(readings, node_of_file, clocks)
    return clocks


def _dates_its_opening(reading: FileReading) -> bool:
    """Do the dates of a file begin with the job, and not with its errors?"""
    if reading.first is None or (reading.first_cascade is not None and reading.first_line >= reading.first_cascade):
        return False
    return not reading.marks or min(mark.line for mark in reading.marks) >= reading.first_line


def _began(readings: Sequence[FileReading], first: float, clocks: Clocks) -> float:
    """When a job began whose steps carry no dates: by Slurm's word, else the time limit of its collectives before its errors."""
    told = [
        with_year(raw.stamp, clocks.near)
        for reading in readings
        for raw in reading.raws
        if raw.row.kind == "job-started" and raw.stamp is not None
    ]
    if before := [at for at in told if at <= first + SLACK_S]:
        return min(max(before), first)
    limits = [float(raw.groups["limit"][:9]) / 1000 for r in readings for raw in r.raws if raw.groups.get("limit")]
    return first - max(limits, default=UNTOLD_S) - SLACK_S


def _shared_steps(readings: Sequence[FileReading], node_of_file: Mapping[str, str], clocks: Clocks) -> None:
    """All ranks leave a step together, so the same step's lines are of one moment; a clock that is off shows there."""
    at: dict[str, dict[int, float]] = {}
    for reading in readings:
        if is_kernel(reading):
            continue
        own = {m.step: with_year(m.stamp, clocks.near) for m in reading.marks if m.step is not None and m.stamp}
        if own:
            at[reading.name] = own
    of_step: dict[int, list[float]] = defaultdict(list)
    for own in at.values():
        for step, when in own.items():
            of_step[step].append(when)
    middle = {step: median(times) for step, times in of_step.items() if len(times) >= 2}
    of_node: dict[str, list[float]] = defaultdict(list)
    for name, own in at.items():
        apart = [when - middle[step] for step, when in own.items() if step in middle]
        if not apart:
            continue
        clocks.tied.add(name)
        off = median(apart)
        spread = max(abs(x - off) for x in apart)
        if abs(off) > (SHIFTED_S if len(apart) < 3 else STEADY_S) and abs(off) > 3 * spread:
            clock = clocks.of_file[name]
            clock.shift, clock.bound = clock.shift - off, max(SYNCED_S, spread)
            clock.note = f"{name}: clock {off:+.1f} s against the others, by {len(apart)} shared steps"
            clocks.notes.append(clock.note)
            if (node := node_of_file.get(name)) is not None:
                of_node[node].append(off)
    for reading in readings:
        if reading.name not in at and (offs := of_node.get(node_of_file.get(reading.name, ""))):
            clocks.of_file[reading.name].shift -= median(offs)  # the ranks of a node read the same clock


def _same_openings(readings: Sequence[FileReading], clocks: Clocks) -> None:
    """Launchers of all nodes begin with the same line within seconds; a file that does not is by another zone or clock.

    Weaker than shared steps, so it is used only where those are missing and all other files agree.
    """
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for reading in readings:
        if not is_kernel(reading) and reading.first is not None and not clocks.of_file[reading.name].shift:
            groups[reading.opening].append((reading.name, with_year(reading.first, clocks.near)))
    stepped = {r.name for r in readings if any(m.step is not None and m.stamp for m in r.marks)}
    for group in groups.values():
        if len(group) < 3:
            continue
        middle = median(at for _, at in group)
        odd = [(name, at - middle) for name, at in group if abs(at - middle) > OPENINGS_S]
        if len(odd) != 1 or odd[0][0] in stepped:
            continue
        name, off = odd[0]
        clock = clocks.of_file[name]
        clock.shift, clock.bound = clock.shift - off, OPENINGS_S / 4
        clocks.notes.append(f"{name}: clock {off:+.0f} s against the others, by the launchers' first lines")


def _boots(readings: Sequence[FileReading], clocks: Clocks) -> None:
    """Ties a kernel's seconds since boot to time, where the log has the line in which the kernel reads its clock."""
    for reading in readings:
        for raw in reading.raws:
            stamp = read_stamp(raw.groups.get("clock", ""))
            if stamp is not None and raw.since_boot is not None:
                clocks.of_file[reading.name].boot = stamp.at - raw.since_boot


def _zone(reading: FileReading, stamps: Sequence[Stamp], clocks: Clocks, node_of_file: Mapping[str, str]) -> None:
    """A machine's log in another zone than the training's: whole hours that bring its last errors into the job's span.

    Nothing is shifted when some line of the log already lies within the job, give or take an hour: then the zones agree.
    """
    del node_of_file
    if clocks.start is None or clocks.end is None or not stamps or any(stamp.zone for stamp in stamps):
        return
    times = [with_year(stamp, clocks.near) for stamp in stamps]
    roots = [
        with_year(raw.stamp, clocks.near) for raw in reading.raws if raw.stamp and raw.row.role == "root"
    ] or times[-1:]
    if any(clocks.start - HOUR <= at <= clocks.end + 60 for at in times):
        return
    for hours in sorted(range(-14, 15), key=abs):
        if hours and clocks.start <= roots[-1] + hours * HOUR <= clocks.end + 60:
            clocks.of_file[reading.name].shift += hours * HOUR
            clocks.notes.append(f"{reading.name}: read as {-hours:+d} h against the training logs, by the job's span")
            return


def _set_clocks(readings: Sequence[FileReading], node_of_file: Mapping[str, str], clocks: Clocks) -> None:
    """A clock that was set: later stamps of that node's files are brought back by what chrony or ntpd says it moved."""
    moved: dict[str, float] = {}
    for reading in readings:
        for raw in reading.raws:
            if raw.row.kind == "clock-stepped" and raw.groups.get("step"):
                node = raw.label.node or node_of_file.get(reading.name)
                if node is not None:
                    moved[node] = float(raw.groups["step"][:16].rstrip(".") or 0)
    for reading in readings:
        step = moved.get(node_of_file.get(reading.name, ""), 0.0)
        if abs(step) < 1.0 or is_kernel(reading):
            continue
        clock = clocks.of_file[reading.name]
        clock.jump, clock.bound = -step, max(clock.bound, 2.0)
        clocks.notes.append(f"{reading.name}: its clock was set by {step:+.1f} s during the job")


def stepped_from(reading: FileReading, clock: Clock, near: float) -> int | None:
    """The first line whose stamp runs against line order by about the step of the clock; None when none does."""
    if not clock.jump:
        return None
    lines = sorted(
        [(r.line, r.stamp) for r in reading.raws if r.stamp] + [(m.line, m.stamp) for m in reading.marks if m.stamp],
        key=lambda pair: pair[0],
    )
    last: float | None = None
    for line, stamp in lines:
        at = with_year(stamp, near)
        if last is not None and last - at > min(30.0, abs(clock.jump) / 2):
            return line
        last = at if last is None else max(last, at)
    return None
