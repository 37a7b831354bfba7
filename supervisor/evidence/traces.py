"""Flight-recorder dumps of torch: which ranks never reached the collective in which the others wait.

A dump is JSON or a pickle. JSON is read here; a pickle never is, for reading it means running what is in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import BaseModel, Field, ValidationError

BYTES: Final = 8 << 20
"""Bytes of one dump: torch keeps 2,000 entries of about 1 kB as a rule; what is larger is not read."""

FEW: Final = 4
"""One rank in so many may have left no dump and still be the odd one."""

_NAME: Final = re.compile(
    r"(?P<prefix>(?:^|.*[._-])(?:nccl_trace_rank|comm_lib_trace_rank|fr_trace|trace_rank|dump)_)(?P<rank>\d{1,6})(?:\.json)?"
)
"""TORCH_FR_DUMP_TEMP_FILE and its older name, as torch and NVRx set them, with the rank behind."""


class _Entry(BaseModel):
    process_group: tuple[str, str]
    collective_seq_id: int
    profiling_name: str = Field(default="", max_length=200)
    state: str = ""
    retired: bool = False
    is_p2p: bool = False


class _Config(BaseModel):
    ranks: str = ""


class _Dump(BaseModel):
    entries: list[_Entry] = Field(max_length=20_000)
    pg_config: dict[str, _Config] = {}


@dataclass(frozen=True, slots=True)
class Group:
    """What one rank did in one process group. `waits_in`: the first collective that has not ended; None: none is left."""

    ranks: frozenset[int]
    last: int
    waits_in: int | None
    op: str


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's dump."""

    file: str
    rank: int
    groups: dict[str, Group]


@dataclass(frozen=True, slots=True)
class Missing:
    """The ranks that are missing from a collective. `file`: a dump that shows it; `seq` None: not told."""

    ranks: tuple[int, ...]
    waiting: int
    what: str
    file: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Dumps:
    """The dumps of a folder, by their names: JSON and pickles."""

    json: list[str] = field(default_factory=list)
    pickles: list[str] = field(default_factory=list)


def rank_of(name: str) -> int | None:
    """The rank of a dump, by its name; None: the name is not that of a dump."""
    match = _NAME.fullmatch(os.path.basename(name))
    return int(match["rank"]) if match else None


def prefix_of(name: str) -> str:
    """The name of a dump without its rank."""
    match = _NAME.fullmatch(os.path.basename(name))
    return match["prefix"] if match else ""


def form(path: str) -> Literal["json", "pickle"] | None:
    """What a file with the name of a dump is by its first bytes; None: a log after all."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError:
        return None
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    return "json" if head.lstrip()[:1] == b"{" else None


def dumps(folder: str, names: Iterable[str]) -> Dumps:
    """Which of these files are dumps."""
    found = Dumps()
    for name in names:
        if rank_of(name) is not None:
            kind = form(os.path.join(folder, name))
            if kind is not None:
                (found.json if kind == "json" else found.pickles).append(name)
    return found


def read_trace(path: str, name: str) -> Trace:
    """One JSON dump. Raises ValueError: it is too large, or none."""
    with open(path, "rb") as file:
        data = file.read(BYTES + 1)
    if len(data) > BYTES:
        raise ValueError(f"larger than {BYTES >> 20} MB; not read")
    try:
        dump = _Dump.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"no flight-recorder dump: {where}: {first['msg']}"[:200]) from None
    ranks = {name: frozenset(int(r) for r in re.findall(r"\d{1,6}", of.ranks)) for name, of in dump.pg_config.items()}
    only = next(iter(ranks.values())) if len(ranks) == 1 else frozenset()
    by_group: dict[str, list[_Entry]] = {}
    for entry in dump.entries:
        if not entry.is_p2p:
            by_group.setdefault(entry.process_group[0], []).append(entry)
    groups = {}
    for group, entries in by_group.items():
        waits = [e.collective_seq_id for e in entries if e.state != "completed" and not e.retired]
        at = min(waits, default=None)
        op = next((e for e in entries if e.collective_seq_id == at), entries[-1])
        what = f"{op.profiling_name} of {op.process_group[1] or group}"
        groups[group] = Group(ranks.get(group, only), max(e.collective_seq_id for e in entries), at, what)
    return Trace(name, rank_of(name) or 0, groups)


def missing(traces: Sequence[Trace]) -> Missing | None:
    """Who is missing: behind the others in a group while he waits in no other; else who left no dump where few have none.

    The front of a group is the last collective at which somebody waits. Who still works at an earlier one, which the
    others have left, waits for nobody.
    """
    fronts = {name: one for name in {n for t in traces for n in t.groups} if (one := _front(name, traces)) is not None}
    waiting = {trace.rank for front in fronts.values() for trace in front.waiters}
    there = {trace.rank for trace in traces}
    found: list[Missing] = []
    for name, front in sorted(fronts.items()):
        absent = front.members - there
        ranks = front.behind - waiting
        if not front.behind and absent and len(absent) * FEW <= len(front.members):
            ranks = absent
        if ranks:
            first = front.waiters[0]
            what = first.groups[name].op
            found.append(Missing(tuple(sorted(ranks)), len(front.waiters), what, first.file, front.at))
    # The group that most wait in tells it best.
    return max(found, key=lambda one: one.waiting, default=None)


@dataclass(frozen=True, slots=True)
class _Front:
    """Where a group stands. `behind`: those who have not come to it, of those whose dump is there."""

    at: int
    waiters: Sequence[Trace]
    behind: frozenset[int]
    members: frozenset[int]


def _front(name: str, traces: Sequence[Trace]) -> _Front | None:
    """The front of one group; None: nobody waits there."""
    own = [trace for trace in traces if name in trace.groups]
    members = frozenset[int]().union(*(trace.groups[name].ranks for trace in own))
    never = (members & {trace.rank for trace in traces}) - {trace.rank for trace in own}
    waits = [(at, trace) for trace in own if (at := trace.groups[name].waits_in) is not None]
    if not waits:
        return None
    at = max(at for at, _ in waits)
    behind = never | {trace.rank for trace in own if trace.groups[name].last < at}
    waiters = [trace for mine, trace in waits if mine == at]
    if not behind:
        # The end of a collective is noted late; who has nothing left to wait for and yet is not at the last one is behind.
        last = max(trace.groups[name].last for _, trace in waits)
        behind |= {t.rank for t in own if t.groups[name].waits_in is None and t.groups[name].last < last}
        at = last if behind else at
    return _Front(at, waiters, behind, members)
