"""How the ranks of this node ended, read from the records that their shims leave.

A shim also tells it by datagram, but one that refused to start does not, and a datagram may find no room.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, Final

_RECORD: Final = 4096
"""Bytes of a record that are read."""


def read_endings(run_dir: str, attempt: int, ranks: Iterable[int]) -> list[dict[str, Any]]:
    """The exit messages (docs/contracts.md, section 4) of those ranks that have left a record."""
    told = []
    for rank in ranks:
        path = os.path.join(run_dir, "attempts", f"{attempt:04d}", "exit", f"rank_{rank:05d}.json")
        try:
            with open(path, "rb") as file:
                record = json.loads(file.read(_RECORD))
        except (OSError, ValueError, RecursionError):
            continue  # not there yet, or not right: the controller must not believe more than we can read
        if isinstance(record, dict):
            message = {"k": "exit", "r": rank, "a": attempt, "t": record.get("wall"), "m": record.get("monotonic")}
            told.append({**record, **message})
    return told
