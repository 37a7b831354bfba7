"""`.metadata` through a restricted unpickler: inert stand-ins for torch's classes, everything else refused.

Nothing of torch is imported and nothing that the file names is called. A save of 5,120 writers has 626,000 chunks, so
the stand-ins are made for speed: C does all of the work, and no Python function runs for an object (of torch's own
reader half of the time goes into its classes' `__init__`, `__hash__` and `__setstate__`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from supervisor.checkpoints.reading.unpickling import RefusedError, load


class Held(list[Any]):
    """Keeps the state that the pickle gives an object, as its one item.

    `list.append` in the place of `__setstate__` is what makes it quick: the state is a dict that the pickle's memo
    keeps alive in any case, so nothing is copied.
    """

    __slots__ = ()
    __setstate__ = list.append
    __hash__ = object.__hash__  # type: ignore[assignment]  # it is a key of a dict; torch's own hash costs a second
    __eq__ = object.__eq__


class Metadata(Held):
    """torch.distributed.checkpoint.metadata.Metadata: the whole file."""

    __slots__ = ()


class TensorMeta(Held):
    """TensorStorageMetadata: {properties, size, chunks}."""

    __slots__ = ()


class Properties(Held):
    """TensorProperties: (dtype, layout, requires_grad, memory format, pinned)."""

    __slots__ = ()


class Chunk(Held):
    """ChunkStorageMetadata: {offsets, sizes}."""

    __slots__ = ()


class BytesMeta(Held):
    """BytesStorageMetadata: nothing in it."""

    __slots__ = ()


class Index(Held):
    """MetadataIndex: {fqn, offset, index}."""

    __slots__ = ()


class StorageInfo(Held):
    """_StorageInfo: {relative_path, offset, length, transform_descriptors}."""

    __slots__ = ()


class StorageMeta(Held):
    """StorageMeta: {checkpoint_id, save_id, load_id, modules}."""

    __slots__ = ()


class Dropped:
    """An object of the plans that Megatron leaves in the file; nobody needs them for a load."""

    __slots__ = ()
    # Any C function of one argument without an effect would do: the state is given to it and forgotten.
    __setstate__ = callable


class DType(str):
    """A torch dtype by its name."""

    __slots__ = ()


def path_of(*parts: object) -> str:
    """What a pickled pathlib.Path says, as text."""
    if not parts or not all(type(part) is str for part in parts):
        raise RefusedError("a path in it is no path")
    return "/".join(str(part) for part in parts)


def member(owner: object, name: object) -> None:
    """A member of an enumeration as Python 3.11.0 to 3.11.3 (Debian 12 has 3.11.2) pickle it: `getattr(class, name)`.

    Nothing is looked up. Raises RefusedError where it is not asked of the stand-in of an enumeration.
    """
    if owner is not callable or type(name) is not str:
        raise RefusedError("it names builtins.getattr, and not for an enumeration")


_DCP: Final = "torch.distributed.checkpoint."
_MCORE: Final = "megatron.core.dist_checkpointing.strategies.torch"
DTYPES: Final[Mapping[str, int]] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2,
    "uint32": 4, "uint64": 8, "bool": 1, "complex64": 8, "complex128": 16, "complex32": 4,
}  # fmt: skip
"""Bytes an element."""

# An enumeration or a layout is called with its one value; `callable` takes any value and says True or False.
_ALLOWED: Final[Mapping[tuple[str, str], Callable[..., Any]]] = {
    (_DCP + "metadata", "Metadata"): Metadata,
    (_DCP + "metadata", "TensorStorageMetadata"): TensorMeta,
    (_DCP + "metadata", "TensorProperties"): Properties,
    (_DCP + "metadata", "_MEM_FORMAT_ENCODING"): callable,
    (_DCP + "metadata", "ChunkStorageMetadata"): Chunk,
    (_DCP + "metadata", "BytesStorageMetadata"): BytesMeta,
    (_DCP + "metadata", "MetadataIndex"): Index,
    (_DCP + "metadata", "StorageMeta"): StorageMeta,
    (_DCP + "filesystem", "_StorageInfo"): StorageInfo,
    (_DCP + "filesystem", "_StoragePrefix"): Dropped,
    (_DCP + "planner", "SavePlan"): Dropped,
    (_DCP + "planner", "WriteItem"): Dropped,
    (_DCP + "planner", "WriteItemType"): callable,
    (_DCP + "planner", "TensorWriteData"): Dropped,
    (_DCP + "planner", "BytesIOWriteData"): Dropped,
    # Until torch 2.2 the properties lived elsewhere; Megatron Core 0.15 had classes of its own.
    ("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"): Properties,
    ("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"): callable,
    (_MCORE, "MCoreMetadata"): Metadata,
    (_MCORE, "MCoreSavePlan"): Dropped,
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): callable,
    ("builtins", "getattr"): member,
    ("pathlib", "PosixPath"): path_of,
    ("pathlib", "PurePosixPath"): path_of,
    ("pathlib._local", "PosixPath"): path_of,  # Python 3.13
    ("collections", "OrderedDict"): dict,
}


def stand_in(module_name: str, global_name: str) -> Any:
    """What stands for one of torch's names. Raises RefusedError for every other name."""
    found = _ALLOWED.get((module_name, global_name))
    if found is not None:
        return found
    if module_name == "torch" and global_name in DTYPES:
        return DType(global_name)
    raise RefusedError(f"it names {module_name[:80]}.{global_name[:80]}, which no metadata needs")


def unpickle(file: Any) -> dict[str, Any]:
    """The state of the Metadata object in an open binary file, `{"state_dict_metadata": ..., "storage_data": ...}`.

    Raises RefusedError (CutError when the file ends too early); MemoryError when the process's limit is reached.
    """
    loaded = load(file, stand_in)
    if file.read(1):
        raise RefusedError("there is more behind its end")
    if type(loaded) is not Metadata or len(loaded) != 1 or type(loaded[0]) is not dict:
        raise RefusedError("it is another object than torch's Metadata")
    return loaded[0]
