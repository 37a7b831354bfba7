"""What a launcher's command, or its hostfile, tells of hosts and the ranks on each. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.evidence.reading import FileReading

_PROCESSES: Final = re.compile(r" --?(?:np?|num-?proc|nproc)[ =](\d{1,6})\b")
_EACH: Final = re.compile(r" (?:--?npernode|-N|--?ppn|-perhost|--?map-by ppr:)[ =]?(\d{1,3})\b")
_ROUND: Final = re.compile(r" --?(?:map-by|rank-by)[ =]node\b| --?bynode\b")
"""Ranks dealt out one to each host, again and again; else each host is filled before the next."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Hosts in their order, and the host of each rank where it can be told. `each`: ranks of a host, where all have as many."""

    hosts: tuple[str, ...]
    ranks: tuple[str, ...] = ()
    each: int | None = None
    in_blocks: bool = True


def read_command(text: str, hosts: str) -> Launch | None:
    """A command line with its list of hosts: `mpirun -np 8 -H a:4,b:4 -map-by slot`. A host that stands twice has two slots."""
    slots: dict[str, int] = {}
    counted = False
    for part in hosts.split(","):
        name, _, count = part.partition(":")
        if not re.fullmatch(r"[A-Za-z][\w-]{0,62}(\.[\w.-]{1,200})?", name) or not re.fullmatch(r"\d{0,3}", count):
            return None
        if name == "localhost":
            return None
        short = name.split(".")[0]
        counted = counted or bool(count) or short in slots
        slots[short] = slots.get(short, 0) + int(count or 1)
    if each := _EACH.search(text):
        slots, counted = dict.fromkeys(slots, int(each[1])), True
    told = _PROCESSES.search(text)
    return _laid(slots, int(told[1]) if told else None, counted, in_blocks=_ROUND.search(text) is None)


def _laid(slots: dict[str, int], processes: int | None, counted: bool, *, in_blocks: bool) -> Launch:
    room = sum(slots.values())
    processes = room if processes is None else processes
    if processes > room or not (counted or processes == room):
        return Launch(tuple(slots))  # more ranks than slots: where they go depends on the launcher
    ranks: list[str] = []
    if in_blocks:
        ranks = [name for name, count in slots.items() for _ in range(count)]
    else:
        for turn in range(max(slots.values(), default=0)):
            ranks += [name for name, count in slots.items() if turn < count]
    ranks = ranks[:processes]
    sizes = {ranks.count(name) for name in slots}
    each = sizes.pop() if in_blocks and len(sizes) == 1 else None
    return Launch(tuple(slots), tuple(ranks), each, in_blocks=each is not None)


def launch(readings: Sequence[FileReading]) -> Launch | None:
    """The first launch that these logs tell of: by a command, else by a hostfile that was printed."""
    slots: dict[str, int] = {}
    for reading in readings:
        for raw in reading.raws:
            if raw.row.kind == "layout-command" and (told := read_command(raw.text, raw.groups["hosts"])) is not None:
                return told
            if raw.row.kind == "layout-slots" and raw.groups["host"] != "localhost":
                slots.setdefault(raw.groups["host"].split(".")[0], int(raw.groups["slots"]))
    return _laid(slots, None, counted=True, in_blocks=True) if slots else None
