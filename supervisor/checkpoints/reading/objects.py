"""Pickled objects of a save (Megatron's common state, counters of plain saves), read without loading a class.

A common state holds the arguments of the training, so names of many modules are in it. Each becomes an inert stand-in;
a name that no common state needs (anything of the standard library beyond the few below, torch beyond its dtypes and
rebuilding functions) is refused, and marks the file as hostile.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from supervisor.checkpoints.reading.archives import BadArchiveError, Pread, read_records
from supervisor.checkpoints.reading.standins import DTYPES, DType, path_of
from supervisor.checkpoints.reading.unpickling import RefusedError, load

OBJECT_MAX: Final = 64 << 20
"""Bytes of one pickled object that are read; Megatron's common state has 30 kB."""


class Inert:
    """Takes whatever a pickle gives an object, and does nothing with it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take the arguments."""

    def __call__(self, *_: Any, **__: Any) -> Inert:
        """Stand for a function, too."""
        return self

    def __setstate__(self, _: Any) -> None:
        """Take the state."""

    def __setitem__(self, _: Any, __: Any) -> None:
        """Take an item."""

    def append(self, _: Any) -> None:
        """Take an item."""

    def extend(self, _: Any) -> None:
        """Take items."""


class Namespace:
    """argparse.Namespace: its attributes are kept."""

    def __init__(self) -> None:
        """Take nothing."""


def _encode(text: Any, coding: Any = "latin1") -> bytes:
    """`_codecs.encode`, as protocol 2 writes bytes."""
    if not isinstance(text, str) or coding not in {"latin1", "latin-1", "utf-8"}:
        raise RefusedError("it encodes something that is no text")
    return text.encode(coding)


def _member(owner: Any, name: Any) -> Inert:
    """A member of an enumeration, as `standins.member`."""
    if owner is not Inert or not isinstance(name, str):
        raise RefusedError("it names builtins.getattr, and not for an enumeration")
    return Inert()


_PLAIN: Final[Mapping[tuple[str, str], Any]] = {
    ("argparse", "Namespace"): Namespace,
    ("collections", "OrderedDict"): dict,
    ("collections", "defaultdict"): Inert,
    ("collections", "Counter"): Inert,
    ("collections", "deque"): Inert,
    ("_codecs", "encode"): _encode,
    ("copyreg", "_reconstructor"): Inert,
    ("builtins", "getattr"): _member,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("builtins", "bytearray"): Inert,
    ("builtins", "object"): Inert,
    **{("builtins", name): Inert for name in ("int", "float", "str", "bool", "bytes", "list", "dict", "tuple")},
    ("pathlib", "PosixPath"): path_of,
    ("pathlib", "PurePosixPath"): path_of,
    ("pathlib._local", "PosixPath"): path_of,
    ("functools", "partial"): Inert,
    ("datetime", "timedelta"): Inert,
    ("datetime", "datetime"): Inert,
    ("types", "SimpleNamespace"): Inert,
    ("signal", "Signals"): Inert,
    ("torch", "Size"): tuple,
    ("torch", "device"): Inert,
    ("torch.serialization", "_get_layout"): Inert,
    ("numpy", "dtype"): Inert,
    ("numpy", "ndarray"): Inert,
    **{
        (f"numpy.{core}.multiarray", name): Inert
        for core in ("core", "_core")
        for name in ("scalar", "_reconstruct")
    },
}  # fmt: skip
_INERT: Final = (
    "torch._utils",
    "torch.storage",
    "torch.nn.functional",
    "torch._C._nn",
    "torch.nn.init",
    "torch._tensor",
)
_CLOSED: Final = frozenset({"torch", "numpy"})


def _stand_in(module_name: str, global_name: str, unknown: set[str]) -> Any:
    """What stands for a name; classes that are not known here go to `unknown`. Raises RefusedError."""
    found = _PLAIN.get((module_name, global_name))
    if found is not None:
        return found
    root = module_name.partition(".")[0]
    if module_name in _INERT or (module_name == "torch" and global_name.endswith("Storage")):
        return Inert
    if module_name == "torch" and global_name in DTYPES:
        return DType(global_name)
    if root in _CLOSED or root in sys.stdlib_module_names or root in sys.builtin_module_names:
        raise RefusedError(f"it names {module_name[:80]}.{global_name[:80]}, which no saved state needs")
    if root != "megatron":
        unknown.add(f"{module_name[:80]}.{global_name[:80]}")
    return Inert


def load_object(pread: Pread, length: int) -> tuple[Any, set[str]]:
    """The object in an archive, and the unknown classes in it. Raises RefusedError, BadArchiveError, OSError."""
    record = next((r for r in read_records(pread, length) if r.name.rpartition("/")[2] == "data.pkl"), None)
    if record is None or record.size > OBJECT_MAX:
        raise BadArchiveError("it holds no pickled object, or one that is too large")
    data = pread(record.start, record.size)
    if len(data) != record.size or crc32(data) != record.crc:
        raise BadArchiveError("its pickled object does not have the check sum that was written with it")
    unknown: set[str] = set()
    loaded = load(io.BytesIO(data), lambda module, name: _stand_in(module, name, unknown), Inert)
    return loaded, unknown


def load_number(pread: Pread, length: int, dtype: str) -> int | float | None:
    """The element of a tensor of one element; None for a dtype that counters don't have. Raises as `load_object`."""
    code = {"int64": "q", "int32": "i", "float32": "f", "float64": "d", "uint8": "B", "int16": "h"}.get(dtype)
    record = next((r for r in read_records(pread, length) if r.is_data), None)
    if code is None or record is None or record.size != DTYPES[dtype]:
        return None
    data = pread(record.start, record.size)
    if crc32(data) != record.crc:
        raise BadArchiveError("its element does not have the check sum that was written with it")
    return memoryview(data).cast(code)[0]  # type: ignore[no-any-return,call-overload]
