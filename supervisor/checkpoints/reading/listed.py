"""What a save's files must be, from outside of the save's own metadata: our manifest, or Megatron's integrity.json."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from supervisor.checkpoints.manifest import MANIFEST_LIMIT, FileEntry, Manifest, UnsoundError
from supervisor.checkpoints.posix import read_bounded
from supervisor.checkpoints.reading.findings import Collected

INTEGRITY = "integrity.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A manifest, as far as a check of files needs it. `iteration`: the step that it was made for."""

    files: Mapping[str, FileEntry]
    iteration: int
    id: str


def read_listed(path: str) -> Listed:
    """A manifest from a file, checked. Raises OSError, or UnsoundError when it is none."""
    return listed(parse(read_bounded(path, MANIFEST_LIMIT)))


def parse(data: bytes) -> Manifest:
    """A manifest of any save. Raises UnsoundError."""
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:80]
        raise UnsoundError(f"it is no manifest: {where}: {first['msg'][:120]}") from None
    if manifest.bytes != sum(entry.size for entry in manifest.files.values()):
        raise UnsoundError("it does not add up: its bytes are not those of its files")
    return manifest


def listed(manifest: Manifest) -> Listed:
    """What a check needs of a manifest."""
    return Listed(manifest.files, manifest.step, manifest.id)


def integrity_sums(
    folder: str, sizes: Mapping[str, int], found: Collected, without: frozenset[str] = frozenset()
) -> Mapping[str, str]:
    """The sums that Megatron's `--verify-integrity` left beside the save: name -> sha256. Empty without that file.

    Files in `without` are left out: they have been judged already.

    It is written last and not with the data, so a kill may leave that of an older save; Megatron then refuses the load.
    """
    if INTEGRITY not in sizes:
        return {}
    try:
        loaded = json.loads(read_bounded(os.path.join(folder, INTEGRITY), MANIFEST_LIMIT))
        sums: Any = loaded["files"] if loaded["algorithm"] == "sha256" else {}
        good = bool(sums) and all(isinstance(s, str) and _SHA256.fullmatch(s) for s in sums.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sums, good = {}, False
    except OSError as error:
        found.add("UNREADABLE", INTEGRITY, error.strerror or str(error))
        return {}
    if not good:
        found.add("INTEGRITY", INTEGRITY, "it is not what Megatron writes")
        return {}
    named = {str(name): str(wanted) for name, wanted in sums.items() if name not in without}
    for name in sorted(set(named) - set(sizes)):
        found.add("MISSING_FILE", name[:255], f"{INTEGRITY} names it")
    return named
