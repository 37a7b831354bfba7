"""The file that each rank leaves beside a save: what its state was (docs/contracts.md, section 5)."""

from __future__ import annotations

import json
import os
from typing import Any


def write_sidecar(directory: str, rank: int, record: dict[str, Any]) -> str:
    """Write `relight/rank_NNNNN.json` under the save's `directory`, whole or not at all; returns its path.

    Raises OSError when it can't be written: a save without it is not complete, and the script should know.
    """
    folder = os.path.join(directory, "relight")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"rank_{rank:05d}.json")
    temporary = f"{path}.tmp{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return path
