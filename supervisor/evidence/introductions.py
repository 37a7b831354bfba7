"""Ranks, launchers and machines that tell who they are and where: what single lines add to a layout. Pure."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from supervisor.evidence.names import file_local, file_rank, stem_node
from supervisor.evidence.places import Places
from supervisor.evidence.reading import FileReading


def number(text: str | None) -> int | None:
    """A count that a line tells; None for 0 and for what cannot be one."""
    return int(text) if text and len(text) < 8 and int(text) > 0 else None


def introduced(places: Places, readings: Sequence[FileReading]) -> None:
    """Ranks that tell their host when they start: `rank=22 local_rank=6 host=z-3`; a file in which one does is its file."""
    for reading in readings:
        told = {}
        for raw in reading.raws:
            if (
                raw.row.kind in ("layout-rank", "layout-process")
                and (rank := _small(raw.groups.get("rank"))) is not None
            ):
                told[rank] = places.host(raw.groups.get("host")) or raw.groups.get("host", "")
        for rank, node in told.items():
            if places.slot(node) is not None:
                places.node_of_rank.setdefault(rank, node)
        if len(told) == 1 and file_rank(reading.name) is None:
            rank, node = next(iter(told.items()))
            places.rank_of_file.setdefault(reading.name, rank)
            if places.slot(node) is not None:
                places.node_of_file.setdefault(reading.name, node)


def hosts_told(readings: Sequence[FileReading], spoken_in: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Files whose head says on which host they are written: one host, and no other one speaks in them."""
    homes = {}
    for reading in readings:
        told = {
            raw.groups.get("node") or raw.groups.get("host") or ""
            for raw in reading.raws
            if raw.row.kind in ("layout-host", "layout-process", "layout-prompt")
        } - {""}
        if len(told) == 1 and set(spoken_in.get(reading.name, ())) <= told:
            homes[reading.name] = told.pop()
    return homes


def sections(reading: FileReading) -> list[tuple[int, str]]:
    """Headings that divide a file by hosts, as (line, host); none where they name but one. A bare name is one between dashes."""
    heads = []
    for raw in reading.raws:
        ruled = raw.row.kind == "layout-host" and raw.text.startswith(("##", "==", "--", "**"))
        if raw.row.kind != "layout-section" and not ruled:
            continue
        before, _, after = raw.around.partition("\f")
        framed = before.rstrip("\n").endswith("---") and after.startswith("---")
        name = raw.groups.get("node") or stem_node(raw.groups.get("path", "")) or (framed and raw.groups.get("bare"))
        if name:
            heads.append((raw.line, name))
    return heads if len({name for _, name in heads}) > 1 else []


def _small(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 8 else None


def reported(places: Places) -> None:
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


def devices(places: Places, readings: Sequence[FileReading]) -> None:
    """NCCL tells where a rank is: `comm 0x... rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 4a000`; of the whole job's group only."""
    for reading in readings:
        for raw in reading.raws:
            rank = _small(raw.groups.get("rank"))
            if raw.row.kind != "layout-nccl" or rank is None or number(raw.groups.get("world")) != places.world:
                continue
            node = places.host(raw.label.node) or places.node_of_file.get(reading.name)
            if node is not None:
                places.node_of_rank.setdefault(rank, node)
                if bus := raw.groups.get("bus"):
                    places.rank_of_bus.setdefault((node, f"{int(bus, 16) >> 12:x}"), rank)


def launched(places: Places, readings: Sequence[FileReading]) -> None:
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


def folders_of_nodes(readings: Sequence[FileReading]) -> set[str]:
    """Folders that hold the logs of ranks, as many each and one after the other: `node-a/rank0.log` to `node-b/rank7.log`."""
    held: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        rank = file_rank(reading.name)
        if rank is not None and "/" in reading.name:
            held[reading.name.split("/")[-2]].add(rank)
    sizes = {len(ranks) for ranks in held.values()}
    whole = all(max(ranks) - min(ranks) + 1 == len(ranks) for ranks in held.values())
    return set(held) if len(held) > 1 and len(sizes) == 1 and min(sizes) > 1 and whole else set()


def world_info(groups: Mapping[str, str]) -> dict[str, list[int]]:
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


def addresses(places: Places, readings: Sequence[FileReading]) -> None:
    """Other names of hosts: the addresses that NCCL prints, the names that a cloud gives its instances."""
    for reading in readings:
        for raw in reading.raws:
            address = raw.groups.get("ip") or raw.groups.get("alias")
            node = places.host(raw.groups.get("node")) if raw.row.kind == "layout-alias" else None
            node = node or places.host(raw.label.node) or places.node_of_file.get(reading.name)
            if address and node:
                places.node_of_ip.setdefault(address, node)
