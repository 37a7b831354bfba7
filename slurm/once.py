"""A JSON file that is written once, by whoever is first: threads, processes and machines may all try at the same time."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping


def write_once(path: str, document: Mapping[str, object]) -> bool:
    """Write it whole, or leave the one that is there; answers whether it was written. Raises OSError."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"  # a pid names neither the thread nor the machine
    with open(temporary, "x", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True
