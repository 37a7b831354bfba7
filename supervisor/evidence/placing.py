"""Which rank sits on which node: what the files themselves say of the layout, resolved; None where it cannot be told. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from supervisor.evidence.accounting import nodes as accounted
from supervisor.evidence.clocks import is_kernel
from supervisor.evidence.introductions import (
    addresses,
    devices,
    folders_of_nodes,
    hosts_told,
    introduced,
    launched,
    number,
    reported,
    sections,
    world_info,
)
from supervisor.evidence.jobs import told_job
from supervisor.evidence.launchlines import launch
from supervisor.evidence.names import expand, file_node, file_rank, natural, numbered, numbers, stem_node
from supervisor.evidence.places import Block, Places
from supervisor.evidence.reading import FileReading, Raw


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
                hosts = world_info(raw.groups)
                sizes = {len(ranks) for ranks in hosts.values()}
                nodes = nodes or list(hosts)
                each = each or (sizes.pop() if len(sizes) == 1 else None)
            elif raw.row.kind in ("layout-size", "layout-nccl"):
                world = world or number(raw.groups.get("world"))
                each = each or number(raw.groups.get("each"))
    told = launch(readings)
    if told is not None and not nodes:
        return list(told.hosts), world or len(told.ranks) or None, each or told.each
    return nodes or accounted(readings), world, each


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
        for raw in reading.raws:
            name = raw.label.node or (raw.groups.get("host") if raw.row.kind == "layout-rank" else None)
            if name:
                spoken[name] += 1
                spoken_in[reading.name][name] += 1
                if raw.label.pid is not None and raw.label.local is not None:
                    locals_of[name, raw.label.pid] = raw.label.local
    homes = hosts_told(readings, spoken_in)
    for name, home in homes.items():
        spoken[home] += 1
        spoken_in[name][home] += 1
    places.sections = {reading.name: heads for reading in readings if (heads := sections(reading))}
    for name, heads in places.sections.items():
        spoken.update(host for _, host in heads)
        spoken_in[name].update(host for _, host in heads)
    labelled = set(spoken)
    for block in places.blocks:
        spoken[block.node] += 1
        spoken_in[block.file][block.node] += 1
    mentioned = {n for r in readings for raw in r.raws for n in _peer_nodes(raw)}
    heard = frozenset({*spoken, *mentioned, *(nodes or ())})
    every = {s for r in readings if r.name not in homes and (s := stem_node(r.name))}
    stems = {
        s for r in readings if r.name not in homes and file_node(r.name, heard) is None and (s := stem_node(r.name))
    }
    stems |= folders_of_nodes(readings) if not (heard or stems) else set()
    named = set(spoken) | mentioned | (stems if len(every) > 1 or not spoken else set())
    places.nodes = tuple(nodes or sorted(named, key=natural))
    # Hosts that are only mentioned need not be all: then nothing may be concluded from their number.
    places.listed = bool(nodes)
    places.whole = bool(nodes) or len(spoken) > 1 or len(stems) > 1 or (bool(labelled) and not mentioned - labelled)
    if (told := launch(readings)) is not None and set(told.hosts) == set(places.nodes):
        places.node_of_rank.update(enumerate(told.ranks))
        places.whole = places.whole and told.in_blocks
    _files(places, readings, spoken_in, homes)
    addresses(places, readings)
    _sizes(places, readings, each, locals_of)
    introduced(places, readings)
    reported(places)
    _processes(places, locals_of)
    devices(places, readings)
    _tasks(places, readings)
    return places


def _peer_nodes(raw: Raw) -> list[str]:
    """The job's nodes that a line of Slurm's names. What it says of a node alone, and of no job, is of any node of the cluster."""
    if raw.row.kind.startswith("srun-") or raw.row.kind in ("node-failure", "launch-timeout"):
        ours = raw.row.kind != "node-failure" or "srun" in raw.text or told_job(raw.text) is not None
        return expand(raw.groups.get("node", "")) if ours else []
    if raw.row.kind == "launch-failed-elsewhere" and (m := re.search(r"failed on node ([\w-]+)", raw.text)):
        return [m[1]]
    if raw.row.kind == "cancelled" and (m := re.search(r" ON ([A-Za-z][\w-]*)", raw.text)):
        return [m[1]]
    return []


def _files(
    places: Places, readings: Sequence[FileReading], spoken_in: dict[str, Counter[str]], homes: dict[str, str]
) -> None:
    """Files of one host: by their name; by who speaks in them, when there are such files of several hosts."""
    known = frozenset(places.nodes)
    places.rank_of_file.update(numbered(reading.name for reading in readings))
    launched(places, readings)
    lone = {next(iter(names)) for names in spoken_in.values() if len(names) == 1}
    for reading in readings:
        node = homes.get(reading.name) or file_node(reading.name, known)
        rank = file_rank(reading.name)
        if rank is not None and (node is None or file_rank(node) != rank):
            places.rank_of_file[reading.name] = rank  # the number of a host (trainer-worker-1) is that of no rank
        heard = [name for name in spoken_in[reading.name] if name in known]
        if node is None and len(heard) == 1 and (len(lone) > 1 or is_kernel(reading)):
            node = heard[0]
        if node is None and len(places.nodes) == 1 and places.whole:
            node = places.nodes[0]
        if node is not None:
            places.node_of_file[reading.name] = node


def _all_places_seen(places: Places, locals_of: dict[tuple[str, int], int]) -> bool:
    """Were places 0, 1, 2 ... of nodes seen without a gap? Place 0 alone says so only where every node has spoken."""
    seen = set(locals_of.values())
    if seen != set(range(max(seen, default=0) + 1)):
        return False
    return len(seen) > 1 or {host for host, _ in locals_of} >= set(places.nodes)


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
    each = each or _each_by_speakers(readings, places)
    if each is None and seen and places.whole and places.nodes and seen % len(places.nodes) == 0:
        each = seen // len(places.nodes)
    if each is None and _all_places_seen(places, locals_of):
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


def _each_by_speakers(readings: Sequence[FileReading], places: Places) -> int | None:
    """What speakers say that tell their rank, their device and their host: rank 16 with device 0 on the third host."""
    told: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        for raw in reading.raws:
            rank, local, slot = raw.label.rank, raw.label.local, places.slot(raw.label.node)
            if rank is not None and local is not None and slot and rank > local and (rank - local) % slot == 0:
                told[str(raw.label.node)].add((rank - local) // slot)
    sizes = set().union(*told.values()) if len(told) > 1 else set()
    return sizes.pop() if len(sizes) == 1 else None


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
