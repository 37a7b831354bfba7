"""What the metadata says, taken apart and checked: tensors, chunks, objects, and where each lies in the files. Pure.

Everything in it came through the stand-ins and is hostile until it has passed here. The whole of it is done in few
passes over columns, since a large save has 626,000 chunks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import Any

from supervisor.checkpoints.reading import tiles
from supervisor.checkpoints.reading.extents import NO_PAYLOAD, Extents, Tensor, is_plain_name
from supervisor.checkpoints.reading.findings import Collected
from supervisor.checkpoints.reading.standins import (
    DTYPES,
    BytesMeta,
    Chunk,
    DType,
    Index,
    Properties,
    StorageInfo,
    StorageMeta,
    TensorMeta,
)
from supervisor.checkpoints.reading.unpickling import RefusedError

LARGEST = (1 << 62) - 1


@dataclass(slots=True)
class Layout:
    """One or more metadata files, taken together. `transformed`: items are not stored as torch's plain archives."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    files: dict[str, Extents] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    save_id: str | None = None
    checkpoint_id: str | None = None
    transformed: bool = False


Wanted = dict[Any, int]
"""For one name: where each of its chunks begins (None for an object) -> bytes of its elements."""


def read_layout(state: Mapping[str, Any], found: Collected) -> Layout:
    """Take apart the state of one Metadata object. Raises RefusedError when it is no metadata at all."""
    return _read(state, found, Layout(), _judge_cover)


def merge_ranks(states: Sequence[tuple[str, Mapping[str, Any]]], found: Collected) -> Layout:
    """Metadata files of single ranks, by name, as one layout: each tensor must be tiled by what all ranks hold of it.

    What every rank has a copy of counts once. Raises RefusedError, with the name of the file.
    """
    merged = Layout()
    boxes: dict[str, set[tiles.Box]] = {}
    sizes: dict[str, tuple[int, ...]] = {}

    def keep(name: str, size: tuple[int, ...], chunks: list[tiles.Box], found: Collected) -> None:
        if sizes.setdefault(name, size) != size:
            found.add("IDENTITY", name, f"{list(size)} on one rank, {list(sizes[name])} on another")
        boxes.setdefault(name, set()).update(chunks)

    for file, state in states:
        try:
            one = _read(state, found, Layout(), keep)
        except RefusedError as error:
            raise RefusedError(f"{file}: {error}") from None
        _join(merged, one, file, found)
    for name, chunks in boxes.items():
        if all(len(offset) == len(sizes[name]) for offset, _ in chunks):
            _judge_cover(name, sizes[name], sorted(chunks), found)
    return merged


def _join(merged: Layout, one: Layout, file: str, found: Collected) -> None:
    for name in sorted(set(one.files) & set(merged.files)):
        found.add("IDENTITY", name, f"{file} and another rank's metadata both hold items in it")
    shift = len(merged.names)
    for extents in one.files.values():
        extents.items[:] = array("I", [item + shift for item in extents.items])
    merged.names += one.names
    merged.files = one.files | merged.files
    merged.tensors |= one.tensors
    merged.objects |= one.objects
    # Without collectives each rank draws a save id of its own, so none is that of the save.
    merged.checkpoint_id = merged.checkpoint_id or one.checkpoint_id
    merged.transformed = merged.transformed or one.transformed


Judge = Callable[[str, tuple[int, ...], list[tiles.Box], Collected], None]
"""Called with each tensor's name, size and chunks."""


def _judge_cover(name: str, size: tuple[int, ...], chunks: list[tiles.Box], found: Collected) -> None:
    fault = tiles.fault(size, chunks)
    if fault is not None:
        found.add(fault[0], name, fault[1])


def _read(state: Mapping[str, Any], found: Collected, layout: Layout, judge: Judge) -> Layout:
    wanted = _tensors(_dict(state.get("state_dict_metadata"), "state_dict_metadata"), layout, found, judge)
    _storage(_dict(state.get("storage_data"), "storage_data"), wanted, layout, found)
    meta = state.get("storage_meta")
    if meta is not None:
        kept = _states([meta], StorageMeta)[0]
        layout.save_id = _text(kept.get("save_id"))
        layout.checkpoint_id = _text(kept.get("checkpoint_id"))
    return layout


def _dict(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not dict:
        raise RefusedError(f"its {what} is no dict")
    return value


def _text(value: Any) -> str | None:
    return value[:4096] if isinstance(value, str) else None


def _states(objects: Iterable[Any], kind: type[list[Any]]) -> list[dict[str, Any]]:
    """The state of each object. Raises RefusedError unless each is of the kind and was given one dict."""
    listed = list(objects)
    if set(map(type, listed)) - {kind} or set(map(len, listed)) - {1}:
        raise RefusedError(f"something stands where torch has a {kind.__name__}")
    states = [held[0] for held in listed]
    if set(map(type, states)) - {dict}:
        raise RefusedError(f"a {kind.__name__} has a state that is no dict")
    return states


def _numbers(tuples: list[Any], what: str) -> None:
    """Raises RefusedError unless all are tuples of whole numbers from 0 to LARGEST."""
    if set(map(type, tuples)) - {tuple}:
        raise RefusedError(f"{what} that is no tuple")
    flat = list(chain.from_iterable(tuples))
    if set(map(type, flat)) - {int} or (flat and (min(flat) < 0 or max(flat) > LARGEST)):
        raise RefusedError(f"{what} with something other than sizes in it")


def _tensors(described: dict[Any, Any], layout: Layout, found: Collected, judge: Judge) -> dict[str, Wanted]:
    """Every tensor and object: is it tiled, and what must be stored of it?"""
    wanted: dict[str, Wanted] = {}
    if set(map(type, described)) - {str}:
        raise RefusedError("a name in it is no text")
    for name, meta in described.items():
        if type(meta) is BytesMeta:
            layout.objects.add(name)
            wanted[name] = {None: NO_PAYLOAD}
            continue
        state = _states([meta], TensorMeta)[0]
        size: Any = state.get("size")
        chunks = state.get("chunks")
        if type(chunks) is not list:
            raise RefusedError("a tensor has no list of chunks")
        boxes_of = _states(chunks, Chunk)
        offsets: list[Any] = [box.get("offsets") for box in boxes_of]
        sizes: list[Any] = [box.get("sizes") for box in boxes_of]
        _numbers([size, *offsets, *sizes], "a size")
        if set(map(len, offsets)) | set(map(len, sizes)) > {len(size)}:
            raise RefusedError(f"a chunk of {name[:80]!r} has another number of dimensions than it")
        dtype = _dtype(state.get("properties"))
        layout.tensors[name] = Tensor(name, dtype, size, len(chunks))
        judge(name, size, list(zip(offsets, sizes, strict=True)), found)
        wanted[name] = _bytes_of(offsets, sizes, DTYPES.get(dtype))
    return wanted


def _dtype(properties: Any) -> str:
    """The dtype's name; an empty one when torch's properties are not as we know them: torch may add to them."""
    if type(properties) is Properties and len(properties) == 1:
        kept = properties[0]
        value = kept[0] if type(kept) is tuple and kept else kept.get("dtype") if type(kept) is dict else None
        if type(value) is DType:
            return str(value)
    return ""


def _bytes_of(offsets: list[Any], sizes: list[Any], width: int | None) -> Wanted:
    """Bytes of each chunk by where it begins. A chunk of no elements yields to a real one that begins there too."""
    if width is None:
        return dict.fromkeys(offsets, NO_PAYLOAD)
    one = len(sizes) > 0 and len(sizes[0]) == 1
    counts = [width * size[0] for size in sizes] if one else [width * prod(size) for size in sizes]
    if 0 not in counts:
        return dict(zip(offsets, counts, strict=True))
    pairs = sorted(zip(counts, offsets, strict=True), key=lambda pair: pair[0])
    return {offset: count for count, offset in pairs}


def _storage(stored: dict[Any, Any], wanted: dict[str, Wanted], layout: Layout, found: Collected) -> None:
    """Chunks and storage one to one, and the extents of each file."""
    keys, infos = _states(stored, Index), _states(stored.values(), StorageInfo)
    _check_columns(keys, infos)
    layout.transformed = any(map(bool, (info.get("transform_descriptors") for info in infos)))
    by_file: dict[str, list[tuple[int, int, int, int]]] = {}
    position: dict[str, int] = {}
    empty: Wanted = {}
    for key, info in zip(keys, infos, strict=True):
        name, offset = key["fqn"], key.get("offset")
        payload = wanted.get(name, empty).pop(offset, None)
        if payload is None:
            found.add("NOT_LISTED", name, f"stored at {list(offset or ())} in {info['relative_path']}, or stored twice")
            payload = NO_PAYLOAD
        length = info["length"]
        if payload != NO_PAYLOAD and length <= payload and not layout.transformed:
            found.add(
                "EXTENT_SHORT", name, f"{length} bytes in {info['relative_path']} for {payload} bytes of elements"
            )
        item = position.setdefault(name, len(position))
        by_file.setdefault(info["relative_path"], []).append((info["offset"], length, payload, item))
    for name, left in wanted.items():
        for offset, payload in left.items():
            # A rank with nothing but padding may leave its empty chunk out.
            if payload:
                found.add("NOT_STORED", name, f"the chunk at {list(offset)}" if offset is not None else "the object")
    layout.names = list(position)
    layout.files = {name: _extents(name, items, found) for name, items in by_file.items()}


def _check_columns(keys: list[dict[str, Any]], infos: list[dict[str, Any]]) -> None:
    """Raises RefusedError unless every column holds what it must."""
    try:
        names = set(map(type, (key["fqn"] for key in keys)))
        numbers = [info[column] for column in ("offset", "length") for info in infos]
        paths = {info["relative_path"] for info in infos}
    except (KeyError, TypeError):
        raise RefusedError("an entry of its storage lacks a part") from None
    if names - {str}:
        raise RefusedError("a name in its storage is no text")
    _numbers([tuple(numbers)], "an extent")
    _numbers([offset for offset in (key.get("offset") for key in keys) if offset is not None], "an offset")
    for path in paths:
        if not is_plain_name(path):
            raise RefusedError(f"it names {str(path)[:80]!r} as one of its files")


def _extents(name: str, items: list[tuple[int, int, int, int]], found: Collected) -> Extents:
    """One file's items in order; they must lie back to back from its first byte on."""
    items.sort()
    at = 0
    for start, length, _, _ in items:
        if start != at:
            code = "EXTENT_GAP" if start > at else "EXTENT_OVERLAP"
            found.add(code, name, f"bytes {min(at, start)} to {max(at, start)}")
        at = max(at, start + length)
    starts, lengths, payloads, of = zip(*items, strict=True)
    return Extents(array("Q", starts), array("Q", lengths), array("Q", payloads), array("I", of))
