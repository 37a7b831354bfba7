"""The ranks of a job in other slots, in the text of its logs: all forms in which a rank, a task or a slot is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.evidence.names import numbers


@dataclass(frozen=True, slots=True)
class Moved:
    """Where each went: rank -> rank, host -> host, slot -> slot, place on its node -> place."""

    ranks: Mapping[int, int]
    nodes: Mapping[str, str]
    slots: Mapping[int, int]
    places: Mapping[int, int] = field(default_factory=dict)


_RANK: Final = re.compile(
    rb"(?<![\w])(?<!local )(?<!local-)((?:global[_ ])?rank[_ ]?(?:\"|')?\s*[:=]?\s?)(\d{1,6})(?![\w.])", re.IGNORECASE
)
_RANKS: Final = re.compile(rb"(\branks? )(\d+(?:, ?\d+)+)", re.IGNORECASE)
_SETS_UP: Final = re.compile(rb"((?:ncclUniqueId from )?\[)(\d{1,6})(?=\] (?:is setting up|via c10d))")
_MPI: Final = re.compile(rb"(\[\d{1,5},)(\d{1,6})(?=\]<std)")
_PREFIX: Final = re.compile(rb"^(\s*)(\d{1,6})(?=: )", re.MULTILINE)
_TASKS: Final = re.compile(rb"(\btasks? )(\d[\d,-]*)(?=:)")
_NODE_RANK: Final = re.compile(rb"(\b(?:node|group)_rank\s*[:=]\s*)(\d{1,6})\b", re.IGNORECASE)
_PLACES: Final = (
    re.compile(rb"(\blocal[_ ]rank\s*[:=]?\s*)(\d{1,3})\b", re.IGNORECASE),
    re.compile(rb"(\[(?:default|local_rank ?))(\d{1,3})(?=\])"),
    re.compile(rb"(\b[A-Za-z][\w.-]*:\d+:\d+ \[)(\d{1,3})(?=\] )"),
    re.compile(rb"(\bcudaDev )(\d{1,3})\b"),
)
_FILE: Final = re.compile(rb"((?:^|[._/-])(?:rank|task)[._-]?)(\d{1,6})(?=[._-])", re.IGNORECASE)


def move_ranks(logs: Mapping[str, bytes], moved: Moved) -> tuple[dict[str, bytes], dict[str, str]]:
    """The logs with everything in its new place, and the files' old names -> new ones."""
    told = [int(m[2]) for data in logs.values() for m in _PREFIX.finditer(data)]
    told += [n for data in logs.values() for m in _TASKS.finditer(data) for n in numbers(m[2].decode())]
    # One launcher a node: then srun's tasks count slots.
    tasks = moved.slots if told and max(told) < len(moved.slots) else moved.ranks
    files = {name: _FILE.sub(_one(moved.ranks), _hosts(name.encode(), moved)).decode() for name in logs}
    return {files[name]: _text(data, moved, tasks) for name, data in logs.items()}, files


def _one(to: Mapping[int, int]) -> Callable[[re.Match[bytes]], bytes]:
    def put(m: re.Match[bytes]) -> bytes:
        width = len(m[2]) if m[2].startswith(b"0") else 1
        return m[1] + f"{to.get(int(m[2]), int(m[2])):0{width}d}".encode()

    return put


def _some(to: Mapping[int, int]) -> Callable[[re.Match[bytes]], bytes]:
    def put(m: re.Match[bytes]) -> bytes:
        apart = b", " if b", " in m[2] else b","
        return m[1] + apart.join(str(n).encode() for n in sorted(to.get(int(n), int(n)) for n in m[2].split(b",")))

    return put


def _ranges(to: Mapping[int, int]) -> Callable[[re.Match[bytes]], bytes]:
    def put(m: re.Match[bytes]) -> bytes:
        return m[1] + ranges(to.get(n, n) for n in numbers(m[2].decode())).encode()

    return put


def ranges(of: Iterable[int]) -> str:
    """Numbers as Slurm writes them: `0-57,59`."""
    parts: list[list[int]] = []
    for number in sorted(of):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _text(data: bytes, moved: Moved, tasks: Mapping[int, int]) -> bytes:
    data = _RANKS.sub(_some(moved.ranks), data)
    data = _RANK.sub(_one(moved.ranks), data)
    data = _SETS_UP.sub(_one(moved.ranks), _MPI.sub(_one(moved.ranks), data))
    data = _PREFIX.sub(_one(tasks), data)
    data = _TASKS.sub(_ranges(tasks), data)
    for form in _PLACES:
        data = form.sub(_one(moved.places), data)
    return _hosts(_NODE_RANK.sub(_one(moved.slots), data), moved)


def _hosts(data: bytes, moved: Moved) -> bytes:
    """Hosts by their new names. A list of them tells the slots, and those stay in their order."""
    if not moved.nodes:
        return data
    name = "(?:" + "|".join(re.escape(n) for n in sorted(moved.nodes, key=len, reverse=True)) + ")"
    word = rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])"
    form = re.compile(rf"(?P<list>{word}(?:[, ]+{word})+)|{word}".encode())
    return form.sub(lambda m: m[0] if m["list"] else moved.nodes[m[0].decode()].encode(), data)
