"""Safetensors: one header of JSON a file, an index over several files, and DCP's shards in that format.

There are no check sums in it: without a manifest the content can't be proved, and that is said.
"""

from __future__ import annotations

import json
import re
import struct
from array import array
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from supervisor.checkpoints.reading import tiles
from supervisor.checkpoints.reading.extents import NO_PAYLOAD, Extents, Tensor, is_plain_name
from supervisor.checkpoints.reading.findings import Collected
from supervisor.checkpoints.reading.layout import Layout

HEADER_MAX: Final = 100 << 20
"""Bytes; the format's own bound."""
DTYPES: Final[Mapping[str, tuple[str, int]]] = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I64": ("int64", 8),
    "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1),
    "U16": ("uint16", 2), "U32": ("uint32", 4), "U64": ("uint64", 8), "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1), "C64": ("complex64", 8),
}  # fmt: skip
INDEX: Final = "model.safetensors.index.json"
_OF_SET: Final = re.compile(r"^(?:shard-\d+-)?(.*)-(\d{5})-of-(\d{5})\.safetensors$")
_SHARDING: Final = "DCP_SHARDING_INFO"

Read = Callable[[str, int, int], bytes]
"""(file, offset, bytes) -> what is there."""


class BadHeaderError(Exception):
    """A header or index is not what the format says."""


def describe(names: list[str], read: Read, found: Collected) -> Layout:
    """All safetensors files of a folder, taken together. Findings go to `found`. Raises OSError."""
    layout = Layout()
    position: dict[str, int] = {}
    boxes: dict[str, list[tiles.Box]] = {}
    files = sorted(name for name in names if name.endswith(".safetensors"))
    if INDEX in names:
        files = _of_index(files, read, found)
    for name in files:
        try:
            header, base = _header(read, name)
            _take(name, header, base, layout, position, boxes, found)
        except FileNotFoundError:
            layout.files[name] = Extents()
            continue
        except BadHeaderError as error:
            found.add("BAD_INDEX", name, str(error))
    layout.names = list(position)
    for name, parts in boxes.items():
        tensor = layout.tensors[name]
        fault = tiles.fault(tensor.shape, parts)
        if fault is not None:
            found.add(fault[0], name, fault[1])
    if INDEX in names:
        _check_weight_map(layout, read, found)
    _check_set(files, found)
    return layout


def _json(data: bytes | str, what: str) -> dict[str, Any]:
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        raise BadHeaderError(f"{what} is no JSON") from None
    if not isinstance(loaded, dict):
        raise BadHeaderError(f"{what} is no JSON object")
    return loaded


def _index(read: Read) -> tuple[dict[str, str], int | None]:
    loaded = _json(read(INDEX, 0, HEADER_MAX), "the index")
    weights = loaded.get("weight_map")
    about = loaded.get("metadata")
    if not isinstance(weights, dict) or not all(is_plain_name(file) for file in weights.values()):
        raise BadHeaderError("its weight_map does not map tensors to files")
    total = about.get("total_size") if isinstance(about, dict) else None
    return weights, total if type(total) is int else None


def _of_index(files: list[str], read: Read, found: Collected) -> list[str]:
    try:
        weights, _ = _index(read)
    except BadHeaderError as error:
        found.add("BAD_INDEX", INDEX, str(error))
        return files
    return sorted(set(weights.values()))


def _header(read: Read, name: str) -> tuple[dict[str, Any], int]:
    """A file's header, and where its data begins."""
    head = read(name, 0, 8)
    size = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
    if not 2 <= size <= HEADER_MAX:
        raise BadHeaderError("it does not begin with the length of a header")
    data = read(name, 8, size)
    if len(data) != size:
        raise BadHeaderError("its header is cut short")
    return _json(data, "its header"), 8 + size


def _take(
    name: str,
    header: dict[str, Any],
    base: int,
    layout: Layout,
    position: dict[str, int],
    boxes: dict[str, list[tiles.Box]],
    found: Collected,
) -> None:
    """One file: extents, and for each tensor the box that lies here."""
    sharding = _sharding(header.pop("__metadata__", None))
    rows = []
    for key, entry in header.items():
        row = _entry(entry)
        if row is None:
            found.add("BAD_INDEX", name, f"the entry of {key[:80]!r} is not what it must be")
            continue
        dtype, shape, start, end = row
        offset = sharding.get(key)
        before = layout.tensors.get(key)
        if len(shape) != len(shape if offset is None else offset) or (before and len(before.shape) != len(shape)):
            found.add("BAD_INDEX", name, f"{key[:80]!r} has another number of dimensions elsewhere")
            continue
        rows.append((start, end, position.setdefault(key, len(position))))
        if before is not None and offset is None:
            found.add("COVER_OVERLAP", key, f"it is in {name} and in another file")
        box = ((0,) * len(shape) if offset is None else offset, shape)
        boxes.setdefault(key, []).append(box)
        _merge(layout, Tensor(key, dtype, shape, 1), boxes[key])
    layout.files[name] = _extents(name, base, sorted(rows), found)


def _entry(entry: Any) -> tuple[str, tuple[int, ...], int, int] | None:
    if not isinstance(entry, dict):
        return None
    kind, shape, ends = entry.get("dtype"), _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    known = DTYPES.get(kind) if isinstance(kind, str) else None
    if known is None or shape is None or ends is None or len(ends) != 2 or len(shape) > tiles.DIMENSIONS_MAX:
        return None
    return (known[0], shape, *ends) if ends[1] - ends[0] == known[1] * prod(shape) else None


def _sizes(value: Any) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)
    return tuple(value) if whole else None


def _sharding(about: Any) -> dict[str, tuple[int, ...]]:
    """Where each tensor's shard begins, as torch's DCP writer notes it."""
    if not isinstance(about, dict) or not isinstance(about.get(_SHARDING), str):
        return {}
    noted = _json(about[_SHARDING], "its sharding")
    offsets = {key: _sizes(part.get("saved_offsets")) for key, part in noted.items() if isinstance(part, dict)}
    return {key: offset for key, offset in offsets.items() if offset is not None}


def _merge(layout: Layout, tensor: Tensor, parts: list[tiles.Box]) -> None:
    """The logical tensor reaches as far as its parts: the format does not say its whole shape."""
    reach = [max(at) for at in zip(*(tuple(o + n for o, n in zip(*box, strict=False)) for box in parts), strict=False)]
    layout.tensors[tensor.name] = Tensor(tensor.name, tensor.dtype, tuple(reach), len(parts))


def _extents(name: str, base: int, rows: list[tuple[int, int, int]], found: Collected) -> Extents:
    at = 0
    for start, end, _ in rows:
        if start != at:
            found.add("EXTENT_GAP" if start > at else "EXTENT_OVERLAP", name, f"bytes {base + min(at, start)} on")
        at = max(at, end)
    # The header is the first item, so that the items fill the file.
    return Extents(
        array("Q", [0, *(base + start for start, _, _ in rows)]),
        array("Q", [base, *(end - start for start, end, _ in rows)]),
        array("Q", [NO_PAYLOAD, *(end - start for start, end, _ in rows)]),
        array("I", [0, *(item for _, _, item in rows)]),
    )


def _check_weight_map(layout: Layout, read: Read, found: Collected) -> None:
    try:
        weights, total = _index(read)
    except BadHeaderError:
        return
    held = {(layout.names[item], file) for file, extents in layout.files.items() for item in extents.items[1:]}
    for key, file in sorted(set(weights.items()) - held):
        found.add("NOT_STORED", key, f"the index says that it is in {file}")
    for key, file in sorted(held - set(weights.items())):
        found.add("NOT_LISTED", key, f"it is in {file}; the index does not say so")
    size = sum(sum(extents.lengths[1:]) for extents in layout.files.values())
    if total is not None and total != size and not any(not extents.starts for extents in layout.files.values()):
        # Older writers counted parameters that share memory twice, so the number alone proves nothing.
        found.add("UNPROVED", INDEX, f"total_size is {total}, the tensors have {size} bytes")


def _check_set(files: list[str], found: Collected) -> None:
    """`-00001-of-00003` says how many there must be. Numbers of shards say nothing: a rank without a part writes none."""
    sets: dict[tuple[str, int], set[int]] = {}
    for match in filter(None, map(_OF_SET.match, files)):
        sets.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (stem, count), there in sets.items():
        for number in sorted(set(range(1, min(count, 99999) + 1)) - there):
            found.add(
                "MISSING_FILE", f"{stem}-{number:05d}-of-{count:05d}.safetensors", "the names say that it must be"
            )
