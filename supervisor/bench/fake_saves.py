"""Saves as torch DCP and Megatron write them, made without torch: for tests that break them, and to time their reading.

The metadata is written opcode by opcode in the order in which torch's classes pickle, each item as the archive that
torch.save makes.
"""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

_DCP: Final = "torch.distributed.checkpoint."
WIDTHS: Final = {"float32": 4, "bfloat16": 2, "int64": 8, "uint8": 1}
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a logical tensor in a file. `data` None: zeros."""

    name: str
    dtype: str
    shape: Shape
    offset: Shape
    size: Shape
    file: str
    data: bytes | None = None

    @property
    def bytes(self) -> bytes:
        """Its elements."""
        return bytes(prod(self.size) * WIDTHS[self.dtype]) if self.data is None else self.data


@dataclass(frozen=True, slots=True)
class Object:
    """One pickled object in a file; `pickled` as `value` makes it."""

    name: str
    file: str
    pickled: bytes


def value(item: object) -> bytes:
    """Opcodes that make a plain value: numbers, text, tuples, lists, dicts, None, and what is bytes already as it is."""
    match item:
        case bytes():
            return item
        case bool() | None:
            return {True: b"\x88", False: b"\x89", None: b"N"}[item]
        case int():
            size = (item.bit_length() + 8) // 8
            return b"\x8a" + bytes([size]) + item.to_bytes(size, "little", signed=True)
        case float():
            return b"F" + repr(item).encode() + b"\n"
        case str():
            data = item.encode()
            return b"X" + len(data).to_bytes(4, "little") + data
        case tuple():
            return b"(" + b"".join(map(value, item)) + b"t"
        case list():
            return b"](" + b"".join(map(value, item)) + b"e"
        case dict():
            return b"}(" + b"".join(value(k) + value(v) for k, v in item.items()) + b"u"
    raise TypeError(f"{type(item)} is no plain value")


def named(module: str, name: str) -> bytes:
    """A global by its name."""
    return value(module) + value(name) + b"\x93"


def called(module: str, name: str, *arguments: object) -> bytes:
    """A global, called."""
    return named(module, name) + value(arguments) + b"R"


def instance(module: str, name: str, state: object) -> bytes:
    """An object of a class with its state, as pickle's protocol 4 has it."""
    return named(module, name) + b")\x81" + value(state) + b"b"


def whole(body: bytes) -> bytes:
    """One pickle."""
    return b"\x80\x04" + body + b"."


def archive(pickled: bytes, data: bytes | None) -> bytes:
    """What torch.save writes: nothing packed, sizes and check sums behind each record."""

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False  # zipfile then writes as torch does, with a description behind each record

    out = Stream()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as packed:
        for name, held in (("data.pkl", pickled), ("byteorder", b"little"), ("data/0", data), ("version", b"3\n")):
            if held is not None:
                packed.writestr(f"archive/{name}", held)
    return out.getvalue()


def _size(numbers: Shape) -> bytes:
    return called("torch", "Size", numbers)


def _tensor(chunks: Sequence[Chunk]) -> bytes:
    first = chunks[0]
    layout = called("torch.serialization", "_get_layout", "torch.strided")
    memory = called(_DCP + "metadata", "_MEM_FORMAT_ENCODING", 0)
    properties = (named("torch", first.dtype), layout, False, memory, False)
    boxes = [
        instance(_DCP + "metadata", "ChunkStorageMetadata", {"offsets": _size(c.offset), "sizes": _size(c.size)})
        for c in chunks
    ]
    state = {
        "properties": instance(_DCP + "metadata", "TensorProperties", properties),
        "size": _size(first.shape),
        "chunks": boxes,
    }
    return instance(_DCP + "metadata", "TensorStorageMetadata", state)


def metadata(
    items: Iterable[Chunk | Object], places: Mapping[int, tuple[str, int, int]], checkpoint_id: str, save_id: str
) -> bytes:
    """`.metadata` of items; `places`: position of an item -> file, offset, length."""
    listed = list(items)
    tensors: dict[str, list[Chunk]] = {}
    for item in listed:
        if isinstance(item, Chunk):
            tensors.setdefault(item.name, []).append(item)
    empty = named(_DCP + "metadata", "BytesStorageMetadata") + b")\x81" + value({}) + b"b"
    described: dict[object, object] = {name: _tensor(chunks) for name, chunks in tensors.items()}
    described |= {item.name: empty for item in listed if isinstance(item, Object)}
    stored: dict[object, object] = {}
    for at, item in enumerate(listed):
        file, offset, length = places[at]
        index: dict[object, object] = {"fqn": item.name, "index": None}
        if isinstance(item, Chunk):
            index["offset"] = _size(item.offset)
        info = {"relative_path": file, "offset": offset, "length": length}
        key = instance(_DCP + "metadata", "MetadataIndex", index)
        stored[key] = instance(_DCP + "filesystem", "_StorageInfo", info)
    about: dict[str, object] = {"checkpoint_id": checkpoint_id, "save_id": save_id, "load_id": None, "modules": []}
    state = {
        "state_dict_metadata": described,
        "planner_data": None,
        "storage_data": stored,
        "storage_meta": instance(_DCP + "metadata", "StorageMeta", about),
        "version": "1.0.0",
    }
    return whole(instance(_DCP + "metadata", "Metadata", state))


def common_state(iteration: int, samples: int, updates: int, lr: float) -> bytes:
    """Megatron's common state, as far as counters need it."""
    args = instance("argparse", "Namespace", {"consumed_train_samples": samples, "skipped_train_samples": 0})
    state = {
        "args": args,
        "iteration": iteration,
        "opt_param_scheduler": {"max_lr": 0.001, "num_steps": 8 * updates},
        "optimizer": {"optimizer": {"param_groups": [{"step": updates, "lr": lr}]}},
    }
    return whole(value([state]))


def write(
    folder: str, items: Sequence[Chunk | Object], *, iteration: int | None = None, megatron: bool = False
) -> None:
    """Write a save in the order in which the framework does: shards, `.metadata`, metadata.json."""
    os.makedirs(folder, exist_ok=True)
    held: dict[str, io.BytesIO] = {}
    places: dict[int, tuple[str, int, int]] = {}
    for at, item in enumerate(items):
        blob = archive(whole(value({})), item.bytes) if isinstance(item, Chunk) else archive(item.pickled, None)
        out = held.setdefault(item.file, io.BytesIO())
        places[at] = (item.file, out.tell(), len(blob))
        out.write(blob)
    for name, out in held.items():
        _put(os.path.join(folder, name), out.getvalue())
    where = folder if iteration is None else f"saves/iter_{iteration:07d}"
    _put(os.path.join(folder, ".metadata"), metadata(items, places, where, "5a1e"))
    if megatron:
        _put(os.path.join(folder, "metadata.json"), json.dumps({"sharded_backend": "torch_dist"}).encode())


def _put(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def cut(shape: Shape, choose: random.Random, pieces: int) -> list[tuple[Shape, Shape]]:
    """Tile a box by cuts at random places: (offset, size) of each piece. Most such tilings are no grid."""
    boxes: list[tuple[Shape, Shape]] = [((0,) * len(shape), shape)]
    for _ in range(pieces):
        at = choose.randrange(len(boxes))
        offset, size = boxes[at]
        ways = [d for d, n in enumerate(size) if n > 1]
        if ways:
            d = choose.choice(ways)
            n = choose.randrange(1, size[d])
            first = (offset, (*size[:d], n, *size[d + 1 :]))
            second = ((*offset[:d], offset[d] + n, *offset[d + 1 :]), (*size[:d], size[d] - n, *size[d + 1 :]))
            boxes[at : at + 1] = [first, second]
    return boxes


def random_items(choose: random.Random, files: int, tensors: int) -> list[Chunk | Object]:
    """Items of a small save, over some files: tensors of one to three dimensions in any tiling, and objects."""
    items: list[Chunk | Object] = []
    for number in range(tensors):
        shape = tuple(choose.randrange(1, 9) for _ in range(choose.randrange(1, 4)))
        dtype = choose.choice(sorted(WIDTHS))
        for offset, size in cut(shape, choose, choose.randrange(6)):
            file = f"__{choose.randrange(files)}_0.distcp"
            data = bytes(choose.randrange(1, 60) for _ in range(prod(size) * WIDTHS[dtype]))
            items.append(Chunk(f"layer.{number}.weight", dtype, shape, offset, size, file, data))
    items += [Object(f"extra.{n}", f"__{n % files}_0.distcp", whole(value({"n": n}))) for n in range(files)]
    return items
