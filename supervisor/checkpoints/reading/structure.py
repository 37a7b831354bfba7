"""What a folder says of itself, read by a process of its own with little memory and a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.checkpoints.reading import child
from supervisor.checkpoints.reading.extents import Extents, Tensor
from supervisor.checkpoints.reading.findings import MEANING, Finding


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading the metadata may take: bytes of address space, seconds of CPU, seconds on the wall.

    Measured with 248 MB of metadata (626,000 chunks, 5,120 writers): 2.0 GB, 5 s. So four times that and more.
    """

    memory: int
    cpu_s: int
    wall_s: float


def limits_for(size: int) -> Limits:
    """Limits for `size` bytes of metadata. A small file gets little, whatever it holds: it may be a bomb."""
    mib = size >> 20
    return Limits(memory=(1 << 30) + 14 * size, cpu_s=60 + mib, wall_s=300.0 + 4 * mib)


@dataclass(frozen=True, slots=True)
class Structure:
    """A save as its metadata has it, all of it checked plain data.

    `format`: megatron, dcp, dcp-ranks, safetensors or unknown. `names`: what `Extents.items` points into.
    `transformed`: the items are stored in another way than as torch's plain archives.
    """

    format: str
    save_id: str | None = None
    checkpoint_id: str | None = None
    transformed: bool = False
    counters: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    objects: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    files: Mapping[str, Extents] = field(default_factory=dict)

    @property
    def iteration(self) -> int | None:
        """The iteration that the state itself gives."""
        found = self.counters.get("iteration")
        return found if isinstance(found, int) else None


class ReaderFault(Exception):  # noqa: N818 - the word for it here: ours, not the save's
    """Our reader failed in a way that says nothing about the save."""


def read_structure(folder: str, limits: Limits) -> Structure:
    """Read what describes the save in `folder`. Raises ReaderFault."""
    command = [sys.executable, "-I", "-S", child.__file__, folder, str(limits.memory), str(limits.cpu_s)]
    try:
        done = subprocess.run(  # noqa: PLW1510 - the exit code is read below
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limits.wall_s, env={}
        )
    except subprocess.TimeoutExpired:
        return _failed("SLOW", f"the metadata could not be read in {limits.wall_s:.0f} s")
    if done.returncode == 0:
        return _parse(done.stdout)
    if done.returncode == child.NO_MEMORY_EXIT:
        return _failed("BAD_METADATA", f"reading it takes more than {limits.memory >> 20} MiB of memory")
    if done.returncode == -signal.SIGXCPU:
        return _failed("BAD_METADATA", f"reading it takes more than {limits.cpu_s} s")
    if done.returncode in {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}:
        return _failed("BAD_METADATA", f"its reader died of it ({signal.Signals(-done.returncode).name})")
    if done.returncode == -signal.SIGKILL:
        return _failed("SLOW", "its reader was killed from outside, perhaps for want of memory on this machine")
    raise ReaderFault(f"exit {done.returncode}: {done.stderr[-2000:].decode(errors='replace')}")


def _failed(code: str, detail: str) -> Structure:
    return Structure("unknown", findings=(Finding(code, ".metadata", detail),))


def _parse(answer: bytes) -> Structure:
    """The answer of the process. It has touched hostile bytes, so it is not believed either. Raises ReaderFault."""
    try:
        size = int.from_bytes(answer[:8], "little")
        header = json.loads(answer[8 : 8 + size])
        if "unreadable" in header:
            name, text = header["unreadable"]
            return Structure("unknown", findings=(Finding("UNREADABLE", str(name), str(text)),))
        return _structure(header, memoryview(answer)[8 + size :])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReaderFault(f"its answer makes no sense: {type(error).__name__}: {error}") from None


def _structure(header: Mapping[str, Any], columns: memoryview) -> Structure:
    names = tuple(map(str, header["names"]))
    files: dict[str, Extents] = {}
    at = 0
    for name, count in header["files"]:
        read = []
        for code in "QQQI":
            column = array(code)
            end = at + column.itemsize * int(count)
            column.frombytes(columns[at:end])
            at = end
            if len(column) != count:
                raise ValueError("a column is cut short")
            read.append(column)
        if max(read[3], default=-1) >= max(len(names), 1):
            raise ValueError("an extent belongs to no name")
        files[str(name)] = Extents(*read)
    if at != len(columns):
        raise ValueError("there is more behind its columns")
    found = tuple(Finding(str(code), str(path), str(detail)) for code, path, detail in header["findings"])
    if any(finding.code not in MEANING for finding in found):
        raise ValueError("a finding has an unknown code")
    tensors = [
        Tensor(str(name), str(dtype), tuple(shape), int(chunks)) for name, dtype, shape, chunks in header["tensors"]
    ]
    counters = header["counters"]
    return Structure(
        format=str(header["format"]),
        save_id=header["save_id"],
        checkpoint_id=header["checkpoint_id"],
        transformed=bool(header["transformed"]),
        counters=counters if isinstance(counters, dict) else {},
        findings=found,
        tensors={tensor.name: tensor for tensor in tensors},
        objects=frozenset(map(str, header["objects"])),
        names=names,
        files=files,
    )


def metadata_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes of metadata among the files (name -> bytes) of a folder."""
    return sum(size for name, size in sizes.items() if os.path.splitext(name)[1] == ".metadata" or name == ".metadata")
