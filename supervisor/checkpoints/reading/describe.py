"""One folder, read as what it is: Megatron's torch_dist, plain DCP, DCP with a metadata file a rank, or safetensors."""

from __future__ import annotations

import json
import os
import re
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from supervisor.checkpoints.posix import open_regular
from supervisor.checkpoints.reading import counters, safetensors
from supervisor.checkpoints.reading.archives import BadArchiveError
from supervisor.checkpoints.reading.extents import NO_PAYLOAD, Extents
from supervisor.checkpoints.reading.findings import Collected
from supervisor.checkpoints.reading.layout import Layout, merge_ranks, read_layout
from supervisor.checkpoints.reading.objects import OBJECT_MAX, load_number, load_object
from supervisor.checkpoints.reading.standins import unpickle
from supervisor.checkpoints.reading.unpickling import CutError, RefusedError

MEGATRON, DCP, RANKS, SAFETENSORS, UNKNOWN = "megatron", "dcp", "dcp-ranks", "safetensors", "unknown"
COMMON: Final = re.compile(r"common_state/shard_[0-9.]+_[0-9.]+")
OPTIMIZER: Final = re.compile(r"optimizer\.(?:[a-z_0-9]+\.)*optimizer/shard_[0-9.]+_[0-9.]+")
"""Objects that hold parameter groups; one of them is enough, since all count the same updates."""
YOUNG_S: Final = 60.0
"""Metadata that is cut short and younger than this may still be on its way."""
_RANK: Final = re.compile(r"__([0-9]{1,7})\.metadata")
_JSON_MAX: Final = 1 << 20


@dataclass(slots=True)
class Described:
    """What a folder says of itself."""

    format: str
    layout: Layout = field(default_factory=Layout)
    counters: dict[str, Any] = field(default_factory=dict)
    found: Collected = field(default_factory=Collected)


def describe(folder: str, *, now: Callable[[], float] = time.time) -> Described:
    """Read all that describes the save in `folder`. Raises OSError; MemoryError at the process's limit."""
    names = os.listdir(folder)
    ranks = sorted(name for name in names if _RANK.fullmatch(name))
    if ".metadata" in names:
        return _distributed(folder, names, now)
    if ranks:
        return _by_rank(folder, ranks, now)
    if any(name.endswith(".safetensors") or name == safetensors.INDEX for name in names):
        described = Described(SAFETENSORS)
        described.layout = safetensors.describe(names, _reader(folder), described.found)
        return described
    described = Described(UNKNOWN)
    begun = not names or any(name.endswith((".distcp", ".metadata.tmp")) or name == "metadata.json" for name in names)
    if begun:
        described.found.add(
            "NO_METADATA", ".metadata", "there is none; the framework writes it when all shards are there"
        )
    else:
        described.found.add("UNKNOWN_FORMAT", "", "neither .metadata nor safetensors")
    return described


def _reader(folder: str) -> safetensors.Read:
    def read(name: str, offset: int, count: int) -> bytes:
        descriptor = open_regular(os.path.join(folder, name))
        try:
            return os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)

    return read


def _load(folder: str, name: str, found: Collected, now: Callable[[], float]) -> dict[str, Any] | None:
    """The state in one metadata file; None, with a finding, when it is no such file."""
    with os.fdopen(open_regular(os.path.join(folder, name)), "rb", buffering=1 << 20) as file:
        try:
            return unpickle(file)
        except CutError as error:
            young = 0 <= now() - os.fstat(file.fileno()).st_mtime < YOUNG_S
            found.add("METADATA_YOUNG" if young else "BAD_METADATA", name, str(error))
        except RefusedError as error:
            found.add("BAD_METADATA", name, str(error))
    return None


def _distributed(folder: str, names: list[str], now: Callable[[], float]) -> Described:
    described = Described(MEGATRON if "metadata.json" in names else DCP)
    found = described.found
    state = _load(folder, ".metadata", found, now)
    if state is None:
        return described
    # What Megatron leaves of its plans takes half of the file and says nothing that the rest does not say.
    state.pop("all_local_plans", None)
    try:
        described.layout = read_layout(state, found)
    except RefusedError as error:
        found.add("BAD_METADATA", ".metadata", str(error))
        return described
    common = next((name for name in sorted(described.layout.objects) if COMMON.fullmatch(name)), None)
    if common is not None or "common.pt" in names:
        described.format = MEGATRON
    if described.format == MEGATRON:
        _check_json(folder, names, found)
        described.counters = _megatron_counters(folder, names, common, described)
    else:
        described.counters = _plain_counters(folder, described.layout)
    return described


def _check_json(folder: str, names: list[str], found: Collected) -> None:
    repair = "the data is judged apart from it; writing its 63 bytes again is enough"
    if "metadata.json" not in names:
        found.add("BAD_METADATA_JSON", "metadata.json", f"missing; {repair}")
        return
    try:
        loaded = json.loads(_reader(folder)("metadata.json", 0, _JSON_MAX))
    except (ValueError, RecursionError):
        found.add("BAD_METADATA_JSON", "metadata.json", f"it does not parse; {repair}")
        return
    backend = loaded.get("sharded_backend") if isinstance(loaded, dict) else None
    if backend != "torch_dist":
        found.add("BAD_METADATA_JSON", "metadata.json", f"it says {str(backend)[:40]!r}, not torch_dist; {repair}")


def _megatron_counters(folder: str, names: list[str], common: str | None, described: Described) -> counters.Counters:
    layout, found = described.layout, described.found
    if "common.pt" in names and common is not None:
        found.add("COMMON_PT", "common.pt", "Megatron would load it in the place of the save's own common state")
    if "common.pt" not in names and common is None:
        found.add("NO_COMMON_STATE", "", "neither an object common_state nor a common.pt")
        return {}
    loaded = _object(folder, layout, common, found, "BAD_COMMON_STATE") if common else _common_pt(folder, layout, found)
    counted = counters.of_common_state(loaded)
    if "updates" not in counted:
        groups = next((name for name in sorted(layout.objects) if OPTIMIZER.fullmatch(name)), None)
        if groups is not None:
            counted |= counters.of_groups(_object(folder, layout, groups, found, "BAD_COMMON_STATE"))
    if loaded is not None and "iteration" not in counted:
        found.add("COUNTERS", common or "common.pt", "it says no iteration")
    return counters.with_skipped(counted)


def _common_pt(folder: str, layout: Layout, found: Collected) -> Any:
    """The common state of a save from before Core 0.19: an archive by itself, and one more file of the save."""
    read = _reader(folder)
    size = os.lstat(os.path.join(folder, "common.pt")).st_size
    item = array("I", [len(layout.names)])
    layout.names.append("common.pt")
    layout.files["common.pt"] = Extents(array("Q", [0]), array("Q", [size]), array("Q", [NO_PAYLOAD]), item)
    return _guarded("common.pt", lambda at, n: read("common.pt", at, n), size, found, "BAD_COMMON_STATE")


def _object(folder: str, layout: Layout, name: str, found: Collected, code: str) -> Any:
    """One pickled object of the save, by its name. None when its file can't be read: that is judged elsewhere."""
    where = _place(layout, name)
    if where is None:
        return None
    file, start, length = where
    read = _reader(folder)
    try:
        if os.lstat(os.path.join(folder, file)).st_size < start + length:
            return None
        return _guarded(name, lambda at, n: read(file, start + at, n), length, found, code)
    except OSError:
        return None


def _guarded(name: str, pread: Callable[[int, int], bytes], length: int, found: Collected, code: str) -> Any:
    if length > 2 * OBJECT_MAX:
        found.add(code, name, f"it has {length} bytes")
        return None
    try:
        loaded, unknown = load_object(pread, length)
    except (BadArchiveError, RefusedError) as error:
        found.add(code, name, str(error))
        return None
    for what in sorted(unknown)[:20]:
        found.add("UNKNOWN_CLASS", name, what)
    return loaded


def _place(layout: Layout, name: str) -> tuple[str, int, int] | None:
    """The file, offset and length of the one item of this name."""
    if layout.transformed or name not in layout.names:
        return None
    item = layout.names.index(name)
    for file, extents in layout.files.items():
        if item in extents.items:
            at = extents.items.index(item)
            return file, extents.starts[at], extents.lengths[at]
    return None


def _plain_counters(folder: str, layout: Layout) -> counters.Counters:
    """Counters of a plain save stand under names of its own; those that are usual are tried, and none is missed."""
    found: counters.Counters = {}
    unseen = Collected()
    for counter, names in counters.PLAIN_NAMES.items():
        name = next((name for name in names if name in layout.objects or _is_one(layout, name)), None)
        where = _place(layout, name) if name is not None else None
        if name is None or where is None:
            continue
        value = _object(folder, layout, name, unseen, "COUNTERS") if name in layout.objects else None
        value = _element(folder, where, layout.tensors[name].dtype) if name in layout.tensors else value
        value = counters.number(value) if counter == "lr" else counters.whole(value)
        if value is not None:
            found[counter] = value
    return counters.with_skipped(found) if "ledger.step" in layout.tensors else found


def _is_one(layout: Layout, name: str) -> bool:
    tensor = layout.tensors.get(name)
    return tensor is not None and set(tensor.shape) <= {1} and tensor.chunks == 1


def _element(folder: str, where: tuple[str, int, int], dtype: str) -> Any:
    file, start, length = where
    read = _reader(folder)
    try:
        return load_number(lambda at, n: read(file, start + at, n), length, dtype)
    except (BadArchiveError, OSError):
        return None


def _by_rank(folder: str, files: list[str], now: Callable[[], float]) -> Described:
    """Each rank's file describes what that rank holds; together they must hold everything."""
    described = Described(RANKS)
    found = described.found
    numbers = sorted(int(match[1]) for match in map(_RANK.fullmatch, files) if match)
    for missing in sorted(set(range(numbers[-1] + 1)) - set(numbers))[:20]:
        found.add("NO_METADATA", f"__{missing}.metadata", "this rank has not finished")
    states = [(name, _load(folder, name, found, now)) for name in files]
    try:
        described.layout = merge_ranks([(name, state) for name, state in states if state is not None], found)
    except RefusedError as error:
        found.add("BAD_METADATA", "", str(error))
        return described
    described.counters = _plain_counters(folder, described.layout)
    return described
