"""What a save says of its configuration: the arguments in Megatron's common state, read by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from supervisor.checkpoints.reading.findings import Weight
from supervisor.checkpoints.reading.folder import look_at
from supervisor.checkpoints.reading.structure import ReaderFault, Structure
from supervisor.checkpoints.spec import stated_child

_MEMORY = 1 << 30
_CPU_S = 60
_WALL_S = 120.0
_OBJECT_MAX = 128 << 20
_ANSWER_MAX = 64 << 20


def read_stated(folder: str, structure: Structure) -> Mapping[str, Any] | None:
    """Values by place (`arguments.*`, `content.*`, `common.*`); empty where the format keeps none.

    None when they can't be read now: a file is away, unreadable, too short or damaged, which others judge. Raises ReaderFault.
    """
    try:
        look = look_at(folder)
    except OSError:
        return None
    short = any(name not in look.files or look.files[name].size < e.end for name, e in structure.files.items())
    if short or any(finding.weight is Weight.NOT_YET for finding in (*look.findings, *structure.findings)):
        return None
    where = None if structure.transformed else _common_state(structure)
    if where is None:
        return {}
    return _ask(os.path.join(folder, where[0]), *where[1:])


def _common_state(structure: Structure) -> tuple[str, int, int] | None:
    """File, offset and length of the common state."""
    for item, name in enumerate(structure.names):
        if name == "common.pt" or name.startswith("common_state/shard_"):
            for file, extents in structure.files.items():
                if item in extents.items:
                    at = extents.items.index(item)
                    return file, extents.starts[at], extents.lengths[at]
    return None


def _ask(path: str, start: int, length: int) -> Mapping[str, Any] | None:
    if length > _OBJECT_MAX:
        return None
    numbers = [str(n) for n in (start, length, _MEMORY, _CPU_S)]
    command = [sys.executable, "-I", "-S", stated_child.__file__, path, *numbers]
    try:
        done = subprocess.run(  # noqa: PLW1510 - the exit code is read below
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WALL_S, env={}
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode < 0 or done.returncode in {stated_child.NO_MEMORY_EXIT, stated_child.UNSOUND_EXIT}:
        return None
    if done.returncode != 0 or len(done.stdout) > _ANSWER_MAX:
        raise ReaderFault(f"exit {done.returncode}: {done.stderr[-2000:].decode(errors='replace')}")
    try:
        found = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise ReaderFault(f"its answer makes no sense: {error}") from None
    return {str(place): value for place, value in found.items()} if isinstance(found, dict) else {}
