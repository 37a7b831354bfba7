"""A layout, and how a label becomes a rank and a node; None where it cannot be told. `placing.py` finds it in logs. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from supervisor.evidence.labels import Label
from supervisor.evidence.names import file_local


@dataclass(frozen=True, slots=True)
class Block:
    """One record of a launcher's failure report."""

    file: str
    line: int
    node: str
    rank: int | None
    local: int | None
    pid: int | None
    code: int | None
    time: str


@dataclass(slots=True)
class Places:
    """The layout as far as it is known, and how a label becomes a rank and a node."""

    nodes: tuple[str, ...] = ()
    world: int | None = None
    per_node: int | None = None
    tasks_are_nodes: bool = False
    whole: bool = False  # `nodes` are all nodes of the job, in the order of their ranks
    listed: bool = False  # a list of the job's nodes was given or found: what is not on it is not of this job
    node_of_rank: dict[int, str] = field(default_factory=dict)  # told outright, beside the layout
    by_pid: dict[tuple[str | None, int], tuple[int | None, int | None]] = field(default_factory=dict)  # -> rank, local
    node_of_pid: dict[int, str | None] = field(default_factory=dict)
    node_of_ip: dict[str, str] = field(default_factory=dict)
    node_of_file: dict[str, str] = field(default_factory=dict)
    rank_of_file: dict[str, int] = field(default_factory=dict)
    first_of_node: dict[str, int] = field(
        default_factory=dict
    )  # its lowest rank, by what the launcher reports of another
    rank_of_bus: dict[tuple[str, str], int] = field(default_factory=dict)  # (node, PCI bus) -> rank
    blocks: list[Block] = field(default_factory=list)
    sections: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # of a file: line of a heading, its host
    _slots: dict[str, int] = field(default_factory=dict)

    def slot(self, node: str | None) -> int | None:
        """The place of a node in the order of the ranks."""
        if len(self._slots) != len(self.nodes):
            self._slots = {name: number for number, name in enumerate(self.nodes)}
        return None if node is None else self._slots.get(node)

    def rank(self, node: str | None, local: int | None) -> int | None:
        """The rank at a place of a block layout."""
        slot = self.slot(node)
        if slot is None or node is None or local is None or not self.per_node or local >= self.per_node:
            return None
        return self.first_of_node.get(node, slot * self.per_node) + local

    def node(self, rank: int | None) -> str | None:
        """The node of a rank in a block layout."""
        if rank is not None and rank in self.node_of_rank:
            return self.node_of_rank[rank]
        if rank is None or not self.per_node or not self.nodes or not self.whole:
            return None
        slot = rank // self.per_node
        return self.nodes[slot] if slot < len(self.nodes) else None

    def host(self, name: str | None) -> str | None:
        """A name or an address as one of our nodes: `n1.cluster.local`, `n1-ib0`, `10.0.0.7`."""
        if not name:
            return None
        if name in self.node_of_ip:
            return self.node_of_ip[name]
        short = name.split(".")[0] if not name[0].isdigit() else name
        if self.slot(short) is not None:
            return short
        trimmed = re.sub(r"-(ib|eth|hsn|opa|bond)\w*$", "", short)
        return trimmed if self.slot(trimmed) is not None else None

    def section(self, file: str, line: int) -> str | None:
        """The host under whose heading a line stands, in a file that has such headings."""
        heads = self.sections.get(file, [])
        above = bisect_right(heads, line, key=lambda head: head[0])
        return heads[above - 1][1] if above else None

    def resolve(self, label: Label, file: str) -> tuple[int | None, str | None]:
        """Rank and node of a speaker."""
        rank, node, local, pid = label.rank, self.host(label.node) or label.node, label.local, label.pid
        home = self.node_of_file.get(file)
        if node is not None and self.nodes and self.slot(node) is None:
            node = home
        if node is None and label.ip:
            node = self.node_of_ip.get(label.ip)
        if pid is not None:
            node = node or home or self.node_of_pid.get(pid)
            known_rank, known_local = self.by_pid.get((node, pid), (None, None))
            rank = known_rank if rank is None else rank
            local = known_local if known_local is not None else local
        node = node or home
        if rank is None and label.task is not None:
            if self.tasks_are_nodes:
                if node is None and label.task < len(self.nodes):
                    node = self.nodes[label.task]
            elif self.world is None or label.task < self.world:
                rank = label.task
        if rank is None:
            rank = self.rank_of_file.get(file)
        if local is None:
            local = file_local(file)
        if self.world is not None and rank is not None and rank >= self.world:
            rank = None
        if rank is None:
            rank = self.rank(node, local)
        if node is None:
            node = self.node(rank)
        return rank, node


def bus_of(pci: str | None) -> str | None:
    """`0000:4a:00` as the number in which NCCL's `busId 4a000` begins."""
    match = re.match(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):", pci or "")
    return f"{(int(match[1], 16) << 8) + int(match[2], 16):x}" if match else None
