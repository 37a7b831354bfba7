"""Which rank sits on which node: what the files themselves say of the layout, resolved; None where it cannot be told. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.evidence.labels import Label
from supervisor.evidence.names import expand, file_local, file_node, file_rank, natural, numbered, numbers, stem_node
from supervisor.evidence.reading import FileReading, Raw


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


def blocks_of(reading: FileReading) -> Iterable[Block]:
    """The records of torchelastic's failure reports in one file."""
    for raw in reading.raws:
        if raw.row.kind != "layout-block":
            continue
        before, _, after = raw.around.partition("\f")
        after = re.split(r"\bhost\s+: ", after, maxsplit=1)[0]
        rank = re.search(r"\brank\s+: (\d{1,7})(?: \(local_rank: (\d{1,4})\))?", after)
        code = re.search(r"exitcode\s+: (-?\d{1,5})\s+\(pid: (\d{1,10})\)", after)
        when = re.findall(r"time\s+: (\S{1,40})", before)
        yield Block(
            file=reading.name,
            line=raw.line,
            node=raw.groups["node"],
            rank=int(rank[1]) if rank else None,
            local=int(rank[2]) if rank and rank[2] else None,
            pid=int(code[2]) if code else None,
            code=int(code[1]) if code else None,
            time=when[-1] if when else "",
        )


def _told(readings: Sequence[FileReading]) -> tuple[list[str], int | None, int | None]:
    nodes: list[str] = []
    world: int | None = None
    each: int | None = None
    for reading in readings:
        for raw in reading.raws:
            if raw.row.kind == "layout-nodes" and not nodes:
                nodes = expand(raw.groups.get("nodes", ""))
            elif raw.row.kind == "layout-deepspeed":
                hosts = _world_info(raw.groups)
                sizes = {len(ranks) for ranks in hosts.values()}
                nodes = nodes or list(hosts)
                each = each or (sizes.pop() if len(sizes) == 1 else None)
            elif raw.row.kind in ("layout-size", "layout-nccl"):
                world = world or _number(raw.groups.get("world"))
                each = each or _number(raw.groups.get("each"))
    return nodes, world, each


def _world_info(groups: Mapping[str, str]) -> dict[str, list[int]]:
    """DeepSpeed's hosts with the places on each: base64 of JSON in its command, or printed as it is."""
    try:
        text = groups.get("dict", "").replace("'", '"')
        if encoded := groups.get("info"):
            text = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        given = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(given, dict):
        return {}
    return {str(host): places for host, places in given.items() if isinstance(places, list)}


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 8 and int(text) > 0 else None


def resolve(
    readings: Sequence[FileReading],
    *,
    nodes: list[str] | None = None,
    each: int | None = None,
    world: int | None = None,
) -> Places:
    """The layout of all that was read; what is given (nodes in slot order, ranks of each, all ranks) is not doubted."""
    places = Places()
    told_nodes, told_world, told_each = _told(readings)
    nodes, each, places.world = nodes or told_nodes, each or told_each, world or told_world
    places.blocks = [block for reading in readings for block in blocks_of(reading)]
    spoken: Counter[str] = Counter()
    spoken_in: dict[str, Counter[str]] = defaultdict(Counter)
    locals_of: dict[tuple[str, int], int] = {}
    for reading in readings:
        for raw in _labelled(reading):
            name = raw.label.node
            if name:
                spoken[name] += 1
                spoken_in[reading.name][name] += 1
                if raw.label.pid is not None and raw.label.local is not None:
                    locals_of[name, raw.label.pid] = raw.label.local
    labelled = set(spoken)
    for block in places.blocks:
        spoken[block.node] += 1
        spoken_in[block.file][block.node] += 1
    mentioned = {n for r in readings for raw in r.raws if (n := _peer_node(raw))}
    heard = frozenset({*spoken, *mentioned, *(nodes or ())})
    stems = {s for r in readings if file_node(r.name, heard) is None and (s := stem_node(r.name))}
    stems |= _folders(readings) if not (heard or stems) else set()
    named = set(spoken) | mentioned | (stems if len(stems) > 1 or not spoken else set())
    places.nodes = tuple(nodes or sorted(named, key=natural))
    # Hosts that are only mentioned need not be all: then nothing may be concluded from their number.
    places.whole = bool(nodes) or len(spoken) > 1 or len(stems) > 1 or (bool(labelled) and not mentioned - labelled)
    _files(places, readings, spoken_in)
    _addresses(places, readings)
    _sizes(places, readings, each, locals_of)
    _introduced(places, readings)
    _reported(places)
    _processes(places, locals_of)
    _buses(places, readings)
    _tasks(places, readings)
    return places


def _folders(readings: Sequence[FileReading]) -> set[str]:
    """Folders that hold the logs of ranks, as many each and one after the other: `node-a/rank0.log` to `node-b/rank7.log`."""
    held: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        rank = file_rank(reading.name)
        if rank is not None and "/" in reading.name:
            held[reading.name.split("/")[-2]].add(rank)
    sizes = {len(ranks) for ranks in held.values()}
    whole = all(max(ranks) - min(ranks) + 1 == len(ranks) for ranks in held.values())
    return set(held) if len(held) > 1 and len(sizes) == 1 and min(sizes) > 1 and whole else set()


def _labelled(reading: FileReading) -> Iterable[Raw]:
    return (raw for raw in reading.raws if raw.label.node)


def _peer_node(raw: Raw) -> str | None:
    if raw.row.kind in (
        "node-failure",
        "launch-timeout",
        "srun-killed",
        "srun-sigkill",
        "srun-exited",
        "srun-terminated",
    ):
        name = raw.groups.get("node")
        return name if name and "[" not in name else None
    if raw.row.kind == "launch-failed-elsewhere" and (m := re.search(r"failed on node ([\w-]+)", raw.text)):
        return m[1]
    if raw.row.kind == "cancelled" and (m := re.search(r" ON ([A-Za-z][\w-]*)", raw.text)):
        return m[1]
    return None


def _files(places: Places, readings: Sequence[FileReading], spoken_in: dict[str, Counter[str]]) -> None:
    """Files of one host: by their name; by who speaks in them, when there are such files of several hosts."""
    known = frozenset(places.nodes)
    places.rank_of_file.update(numbered(reading.name for reading in readings))
    _launched(places, readings)
    lone = {next(iter(names)) for names in spoken_in.values() if len(names) == 1}
    for reading in readings:
        rank = file_rank(reading.name)
        if rank is not None:
            places.rank_of_file[reading.name] = rank
        node = file_node(reading.name, known)
        heard = [name for name in spoken_in[reading.name] if name in known]
        if node is None and len(heard) == 1 and len(lone) > 1:
            node = heard[0]
        if node is None and len(places.nodes) == 1 and places.whole:
            node = places.nodes[0]
        if node is not None:
            places.node_of_file[reading.name] = node


def _launched(places: Places, readings: Sequence[FileReading]) -> None:
    """Files of a launcher's folder are of local ranks: as far from their ranks as those of the same folder that say theirs."""
    folders: dict[str, dict[str, int]] = defaultdict(dict)
    apart: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        local = file_local(reading.name)
        if local is None:
            continue
        folder = reading.name.rsplit("/", 2)[0]
        folders[folder][reading.name] = local
        apart[folder] |= {raw.label.rank - local for raw in reading.raws if raw.label.rank is not None}
    for folder, files in folders.items():
        if len(apart[folder]) == 1:
            begin = next(iter(apart[folder]))
            places.rank_of_file.update({name: begin + local for name, local in files.items() if begin >= 0})


def _addresses(places: Places, readings: Sequence[FileReading]) -> None:
    for reading in readings:
        for raw in reading.raws:
            address = raw.groups.get("ip") or raw.groups.get("alias")
            node = places.host(raw.groups.get("node")) if raw.row.kind == "layout-alias" else None
            node = node or places.host(raw.label.node) or places.node_of_file.get(reading.name)
            if address and node:
                places.node_of_ip.setdefault(address, node)


def _introduced(places: Places, readings: Sequence[FileReading]) -> None:
    """Ranks that tell their host when they start: `rank=22 local_rank=6 host=z-3`; a file in which one does is its file."""
    for reading in readings:
        told = {}
        for raw in reading.raws:
            if raw.row.kind == "layout-rank" and (rank := _small(raw.groups.get("rank"))) is not None:
                told[rank] = places.host(raw.groups.get("host")) or raw.groups.get("host", "")
        for rank, node in told.items():
            if places.slot(node) is not None:
                places.node_of_rank.setdefault(rank, node)
        if len(told) == 1 and file_rank(reading.name) is None:
            rank, node = next(iter(told.items()))
            places.rank_of_file.setdefault(reading.name, rank)
            if places.slot(node) is not None:
                places.node_of_file.setdefault(reading.name, node)


def _small(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 8 else None


def _reported(places: Places) -> None:
    """A launcher's report of one rank tells where its node begins: rank 12 with local rank 4 sits on a node whose first is 8."""
    begins: dict[str, int] = {}
    for block in places.blocks:
        if block.rank is not None and block.local is not None and block.rank >= block.local:
            begins.setdefault(block.node, block.rank - block.local)
    local = max((block.local for block in places.blocks if block.local is not None), default=0)
    if places.per_node is None:
        sizes = [n for n in range(local + 1, 17) if all(first % n == 0 for first in begins.values())]
        if len(sizes) == 1 and any(begins.values()):  # no machine has more than 16
            places.per_node = sizes[0]
    if places.whole:
        return
    for node, first in begins.items():
        places.first_of_node[node] = first
        for rank in range(first, first + (places.per_node or local + 1)):
            places.node_of_rank.setdefault(rank, node)


def _buses(places: Places, readings: Sequence[FileReading]) -> None:
    """NCCL tells where a rank is: `comm 0x... rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 4a000`; of the whole job's group only."""
    for reading in readings:
        for raw in reading.raws:
            rank = _small(raw.groups.get("rank"))
            if raw.row.kind != "layout-nccl" or rank is None or _number(raw.groups.get("world")) != places.world:
                continue
            node = places.host(raw.label.node) or places.node_of_file.get(reading.name)
            if node is not None:
                places.node_of_rank.setdefault(rank, node)
                if bus := raw.groups.get("bus"):
                    places.rank_of_bus.setdefault((node, f"{int(bus, 16) >> 12:x}"), rank)


def bus_of(pci: str | None) -> str | None:
    """`0000:4a:00` as the number in which NCCL's `busId 4a000` begins."""
    match = re.match(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):", pci or "")
    return f"{(int(match[1], 16) << 8) + int(match[2], 16):x}" if match else None


def _sizes(
    places: Places, readings: Sequence[FileReading], each: int | None, locals_of: dict[tuple[str, int], int]
) -> None:
    if places.world is None:
        ranks = {block.rank for block in places.blocks if block.rank is not None}
        ranks |= set(places.rank_of_file.values())
        ranks |= {raw.label.rank for r in readings for raw in r.raws if raw.label.rank is not None}
        ranks |= {raw.label.task for r in readings for raw in r.raws if raw.label.task is not None}
        seen = (max(ranks) + 1) if ranks else None
    else:
        seen = places.world
    if each is None:
        for block in places.blocks:
            if block.rank is not None and block.local is not None and block.node in places.nodes:
                slot = places.nodes.index(block.node)
                if slot and (block.rank - block.local) % slot == 0 and block.rank > block.local:
                    each = (block.rank - block.local) // slot
                    break
    if each is None and seen and places.whole and places.nodes and seen % len(places.nodes) == 0:
        each = seen // len(places.nodes)
    if each is None and set(locals_of.values()) == set(range(max(locals_of.values(), default=0) + 1)):
        each = max(locals_of.values()) + 1
    if each is None:
        each = _processes_per_node(readings, places)
    if each is None and len(places.nodes) == 1 and places.whole:
        each = seen
    places.per_node = each
    if each and seen and each * len(places.nodes) < seen:
        places.whole = False  # there are more ranks than these nodes hold: some node is not known
    if places.world is None and each and places.whole and (seen is None or seen <= each * len(places.nodes)):
        places.world = each * len(places.nodes)
    places.world = places.world or seen
    places.tasks_are_nodes = _tasks_are_nodes(places, readings)


def _processes_per_node(readings: Sequence[FileReading], places: Places) -> int | None:
    """How many processes of each host spoke one after the other, at the last time that all hosts did."""
    groups: list[tuple[str, set[int]]] = []
    for reading in readings:
        for raw in reading.raws:
            if raw.row.kind == "layout-pmix" and raw.label.node in places.nodes and raw.label.pid is not None:
                if not groups or groups[-1][0] != raw.label.node:
                    groups.append((str(raw.label.node), set()))
                groups[-1][1].add(raw.label.pid)
    last = groups[-len(places.nodes) :] if places.nodes else []
    sizes = {len(pids) for _, pids in last}
    return sizes.pop() if len(sizes) == 1 and {name for name, _ in last} == set(places.nodes) else None


def _tasks_are_nodes(places: Places, readings: Sequence[FileReading]) -> bool:
    """Srun's task numbers count nodes (one launcher a node), not ranks."""
    if not places.per_node or places.per_node == 1 or len(places.nodes) < 2:
        return False
    for reading in readings:
        for raw in reading.raws:
            task, node = raw.label.task, places.host(raw.label.node)
            if raw.row.kind.startswith("srun-"):
                node = places.host(raw.groups.get("node"))
                first = re.match(r"\d+", raw.groups.get("tasks", ""))
                task = int(first[0]) if first else None
            if task is None or node is None:
                continue
            if task >= len(places.nodes):
                return False
            if places.nodes[task] == node and places.node(task) != node:
                return True
    return False


def _processes(places: Places, locals_of: dict[tuple[str, int], int]) -> None:
    for block in places.blocks:
        if block.rank is not None:
            places.node_of_rank[block.rank] = block.node
        if block.pid is not None:
            places.by_pid[block.node, block.pid] = (block.rank, block.local)
            places.node_of_pid[block.pid] = block.node
    of_node: dict[str, dict[int, int]] = defaultdict(dict)
    for (node, pid), local in locals_of.items():
        of_node[node][pid] = local
    for node, pids in of_node.items():
        # NCCL prints the device in brackets; with one device visible to each process that is always 0
        if len(pids) > 1 and len(set(pids.values())) == 1 and places.per_node and len(pids) <= places.per_node:
            pids = {pid: place for place, pid in enumerate(sorted(pids))} if len(pids) == places.per_node else {}  # noqa: PLW2901
        for pid, local in pids.items():
            known = places.by_pid.get((node, pid))
            if known is None or known[0] is None:
                places.by_pid[node, pid] = (places.rank(node, local), local)
            places.node_of_pid.setdefault(pid, node)


def _tasks(places: Places, readings: Sequence[FileReading]) -> None:
    """Srun tells the node of each task; where tasks are ranks that is the node of each rank."""
    if places.tasks_are_nodes:
        return
    told = [
        (task, node)
        for reading in readings
        for raw in reading.raws
        if raw.row.kind.startswith("srun-") and (node := raw.groups.get("node"))
        for task in numbers(raw.groups.get("tasks", ""))
    ]
    if places.per_node == 1 or any(task >= len(places.nodes) for task, _ in told):
        for task, node in told:
            places.node_of_rank.setdefault(task, node)
