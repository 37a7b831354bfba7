"""The logs of one job told another way: what a verdict must survive, and how it has to move. Pure, chance by a seed.

Another way is: cut short, damaged, with garbage between the lines, with the lines of other speakers in another order, by
clocks that are all off by one amount, on hosts of other names, and with the ranks in other slots. The first two promise
only that an answer comes; the others that it stays the same but for the places that have moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from supervisor.evidence.names import file_node, file_rank, natural
from supervisor.evidence.reading import STEP
from supervisor.evidence.retold_ranks import Moved, move_ranks
from supervisor.evidence.retold_times import shift, year_of
from supervisor.evidence.table import CATEGORIES

Logs = Mapping[str, bytes]
"""Name of the file, relative to the folder -> its bytes."""


SKEW_S: Final = 120.0
"""A node's clock is off by up to so much."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the ranks of the job sat: rank r on `nodes[r // each]`."""

    nodes: tuple[str, ...]
    each: int


@dataclass(frozen=True, slots=True)
class Told:
    """The job told another way. What is not in a mapping has not moved. `same`: the verdict has to be the same.

    `order`: lines of several speakers have changed places, and of equal errors without a time another may be the first.
    """

    logs: dict[str, bytes]
    same: bool = True
    order: bool = False
    hosts: frozenset[str] | None = None  # nobody else may be suspected; None: names may be damaged
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, Sequence[int]] = field(default_factory=dict)  # old name -> new number of each line, from 1
    ranks: Mapping[int, int] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    def expected(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """What an answer (the form of `relight diagnose --json`) becomes, as far as it is compared."""
        first = before["first_error"]
        if first is not None:
            numbers_of = self.lines.get(first["file"])
            first = {
                "file": self.files.get(first["file"], first["file"]),
                "line": first["line"] if numbers_of is None else numbers_of[first["line"] - 1],
                "rank": self.ranks.get(first["rank"], first["rank"]),
                "node": self.nodes.get(first["node"], first["node"]),
            }
        suspects = sorted(self.nodes.get(node, node) for node in before["suspect_nodes"])
        kept = {
            key: before[key] for key in ("failed", "cannot_tell", "category", "restart_ok", "confidence", "evidence")
        }
        return {**kept, "first_error": first, "suspect_nodes": suspects}


def differences(told: Told, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What has moved and should not have, or has not moved and should have; empty when all is well."""
    wrong = _form(told, after)
    if not told.same or wrong:
        return wrong
    wanted = told.expected(before)
    if told.order and _equals(before, after):
        wanted["first_error"] = after["first_error"]
    got = {**{key: after[key] for key in wanted}, "suspect_nodes": sorted(after["suspect_nodes"])}
    return [f"{key}: {got[key]!r}, not {wanted[key]!r}" for key in wanted if got[key] != wanted[key]]


def _form(told: Told, answer: Mapping[str, Any]) -> list[str]:
    """What an answer must be whatever lies in the folder: its line is there, and only hosts of the job are suspected."""
    first, wrong = answer["first_error"], []
    if first is not None and not 1 <= first["line"] <= told.logs[first["file"]].count(b"\n") + 1:
        wrong.append(f"first_error: {first['file']} has no line {first['line']}")
    if answer["category"] not in CATEGORIES or (not answer["failed"] and (first or answer["suspect_nodes"])):
        wrong.append(f"form: failed {answer['failed']}, category {answer['category']}")
    if told.hosts is not None and not told.hosts.issuperset(answer["suspect_nodes"]):
        wrong.append(f"suspect_nodes: {answer['suspect_nodes']} are not all of the job")
    return wrong


def _equals(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """The first line says the same but for its numbers: another of those that all said so."""
    words = [re.sub(r"\d+", "0", answer["lines"][0]["text"]) if answer["lines"] else None for answer in (before, after)]
    return words[0] is not None and words[0] == words[1]


def cut(logs: Logs, layout: Layout, chance: Random) -> Told:
    """Each file ends somewhere, at any byte; some are gone."""
    kept = {name: data[: chance.randint(0, len(data))] for name, data in logs.items() if chance.random() < 0.9}
    return Told(kept, same=False, hosts=frozenset(layout.nodes))


def damaged(logs: Logs, layout: Layout, chance: Random) -> Told:
    """One byte in a hundred is another."""
    del layout
    out = {}
    for name, data in logs.items():
        changed = bytearray(data)
        for _ in range(len(data) // 100):
            changed[chance.randrange(len(data))] = chance.randrange(256)
        out[name] = bytes(changed)
    return Told(out, same=False)


def littered(logs: Logs, layout: Layout, chance: Random) -> Told:
    """One line in ten has a line of garbage before it: bytes that no program meant, none of them a letter of a word."""
    del layout
    out, lines = {}, {}
    for name, data in logs.items():
        told: list[bytes] = []
        moved = []
        for line in data.split(b"\n"):
            if chance.random() < 0.1:
                told.append(bytes(chance.choice(_GARBAGE) for _ in range(chance.randint(1, 80))))
            moved.append(len(told) + 1)
            told.append(line)
        out[name], lines[name] = b"\n".join(told), moved
    return Told(out, lines=lines)


_GARBAGE: Final = bytes(b for b in range(256) if b not in (0x0A, 0x0D, 0x1B) and not chr(b).isascii()) + b"\x00\x01\x7f"

_SPEAKER: Final = re.compile(
    rb"^(?:\x1b\[[\d;]*m)?\s*(\[(?:rank|default)\s?\d+\]|\d{1,6}: |\[\d+,\d+\]<std|[A-Za-z][\w.-]*:\d+:\d+ \[\d+\])",
    re.IGNORECASE,
)


def _speaker(line: bytes) -> bytes | None:
    found = _SPEAKER.match(line)
    return None if found is None or STEP[0].pattern.search(line.decode("utf-8", "replace")) else found[1]


def interleaved(logs: Logs, layout: Layout, chance: Random) -> Told:
    """Neighbouring lines of two speakers change places, again and again. A line without a speaker stays where it is, and
    so does a line of progress: what stands before two of those was survived.
    """
    del layout
    out, lines = {}, {}
    for name, data in logs.items():
        old = data.split(b"\n")
        speakers = [_speaker(line) for line in old]
        order = list(range(len(old)))
        for _ in range(8):
            at = 0
            while at + 1 < len(order):
                one, two = speakers[order[at]], speakers[order[at + 1]]
                if one is not None and two is not None and one != two and chance.random() < 0.5:
                    order[at], order[at + 1] = order[at + 1], order[at]
                at += 1
        out[name] = b"\n".join(old[i] for i in order)
        moved = [0] * len(old)
        for new, i in enumerate(order, 1):
            moved[i] = new
        lines[name] = moved
    return Told(out, order=True, lines=lines)


def filed(logs: Logs, layout: Layout, chance: Random) -> Told:
    """Each file lies in a folder of its own, and they are read in another order."""
    del layout
    numbers = chance.sample(range(99999), len(logs))
    files = {name: f"{number:05d}/{name}" for name, number in zip(logs, numbers, strict=True)}
    return Told({files[name]: data for name, data in logs.items()}, order=True, files=files)


def shifted(logs: Logs, layout: Layout, chance: Random) -> Told:
    """All clocks of the job are off by one amount, up to 40 days."""
    del layout
    seconds = chance.choice((-1, 1)) * chance.randint(60, 40 * 86400)
    dated = year_of(logs.values())
    return Told({name: shift(data, seconds, dated) for name, data in logs.items()})


def skewed(logs: Logs, layout: Layout, chance: Random) -> Told:
    """Each node's clock is off by its own amount. A job with stamps in a file of no one node stays as it is: who wrote
    which of them is not known here.
    """
    off = {node: chance.randint(-int(SKEW_S), int(SKEW_S)) for node in layout.nodes}
    dated = year_of(logs.values())
    known = frozenset(layout.nodes)
    out = {}
    for name, data in logs.items():
        node = file_node(name, known)
        rank = file_rank(name)
        if node is None and rank is not None and rank < len(layout.nodes) * layout.each:
            node = layout.nodes[rank // layout.each]
        out[name] = data if node is None else shift(data, off[node], dated)
        if node is None and shift(data, 86400, dated) != data:
            return Told(dict(logs))
    return Told(out)


def renamed(logs: Logs, layout: Layout, chance: Random) -> Told:
    """All hosts have other names. Their order by name stays, for where no list tells the slots it is all that does."""
    names = dict(zip(layout.nodes, layout.nodes, strict=True))
    for by in chance.sample(range(1, 26), 25):
        new = {node: _turned(node, by) for node in layout.nodes}
        if sorted(new, key=natural) == sorted(new, key=lambda node: natural(new[node])):
            names = new
            break
    stems = {re.sub(r"\d+$", "", node) for node in layout.nodes if re.search(r"\D\d+$", node)}
    swap = {**names, **{f"{stem}[": f"{_turned(stem, by)}[" for stem in stems}}
    files = {name: rename(name.encode(), swap).decode() for name in logs}
    return Told({files[name]: rename(data, swap) for name, data in logs.items()}, files=files, nodes=names)


def _turned(name: str, by: int) -> str:
    """Each letter is another; digits and dashes stay."""
    low = "abcdefghijklmnopqrstuvwxyz"
    other = low[by:] + low[:by]
    return name.translate(str.maketrans(low + low.upper(), other + other.upper()))


def rename(data: bytes, names: Mapping[str, str]) -> bytes:
    """The text with other names, where they stand as whole words (or before the bracket of a host list)."""
    ends = ((re.escape(name), "" if name.endswith("[") else "(?![A-Za-z0-9])") for name in names)
    words = "|".join(word + end for word, end in sorted(ends, key=lambda pair: len(pair[0]), reverse=True))
    form = re.compile(rf"(?<![A-Za-z0-9])(?:{words})".encode())
    return form.sub(lambda m: names[m[0].decode()].encode(), data)


def permuted(logs: Logs, layout: Layout, chance: Random) -> Told:
    """Whole nodes change places: ranks and hosts move together. The first slot stays, for the store and the trainer's
    own words live there; a job of two nodes swaps both.
    """
    slots = list(range(len(layout.nodes)))
    rest = slots[1:] if len(slots) > 2 else slots
    mixed = rest[1:] + rest[:1] if len(rest) < 3 else chance.sample(rest, len(rest))
    to = dict(zip(slots, [*slots[: len(slots) - len(rest)], *mixed], strict=True))
    ranks = {r: to[r // layout.each] * layout.each + r % layout.each for r in range(len(slots) * layout.each)}
    nodes = {layout.nodes[slot]: layout.nodes[new] for slot, new in to.items()}
    moved = Moved(ranks, nodes, to)
    told, files = move_ranks(logs, moved)
    return Told(told, files=files, ranks=ranks, nodes=nodes)


def turned(logs: Logs, layout: Layout, chance: Random) -> Told:
    """The ranks of each node change places among each other, on all nodes in the same way.

    Where each process sees only its own device, NCCL calls all places 0, and the ranks go by the numbers of the processes:
    such a job stays as it is.
    """
    if any(_one_place(data) for data in logs.values()):
        return Told(dict(logs))
    places = chance.sample(range(layout.each), layout.each)
    ranks = {s * layout.each + n: s * layout.each + to for s in range(len(layout.nodes)) for n, to in enumerate(places)}
    told, files = move_ranks(logs, Moved(ranks, {}, {}, dict(enumerate(places))))
    return Told(told, files=files, ranks=ranks)


_NCCL: Final = re.compile(rb"\b([A-Za-z][\w.-]*):(\d+):\d+ \[(\d{1,3})\] ")


def _one_place(data: bytes) -> bool:
    seen: dict[bytes, set[tuple[bytes, bytes]]] = {}
    for m in _NCCL.finditer(data):
        seen.setdefault(m[1], set()).add((m[2], m[3]))
    return any(len(pids) > 1 and len({place for _, place in pids}) == 1 for pids in seen.values())


WAYS: Final[dict[str, Callable[[Logs, Layout, Random], Told]]] = {
    way.__name__: way
    for way in (cut, damaged, littered, interleaved, filed, shifted, skewed, renamed, permuted, turned)
}
