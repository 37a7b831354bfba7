"""What each rank left beside a save, read and compared."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, ValidationError

from supervisor.checkpoints.posix import read_bounded
from supervisor.checkpoints.tree import SaveId

FOLDER = "relight"
_NAME = re.compile(r"rank_([0-9]{5,7})\.json")
_LIMIT = 1 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z:_+/=-]{1,160}$")]
Text = Annotated[str, StringConstraints(max_length=200)]
Next = tuple[NonNegativeInt, NonNegativeInt, Text]


class Sidecar(BaseModel):
    """One rank's file (docs/contracts.md, section 5). `files`: name in the save's folder -> bytes."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    schema_: Literal[1] = Field(alias="schema")
    rank: NonNegativeInt
    attempt: NonNegativeInt | None = None
    tp: NonNegativeInt | None = None
    pp: NonNegativeInt | None = None
    dp: NonNegativeInt | None = None
    step: NonNegativeInt
    samples: NonNegativeInt
    updates: NonNegativeInt
    skipped: NonNegativeInt
    lr: float | None
    digest: Digest | None
    next: Next | None
    files: dict[Text, NonNegativeInt]
    data_version: Text = ""


def rank_of(name: str) -> int | None:
    """The rank in a sidecar's file name; None for another file, such as one that is still being written."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found and name == f"rank_{int(found[1]):05d}.json" else None


def read_sidecars(save: str, names: Iterable[str], threads: int) -> tuple[dict[int, Sidecar], list[str]]:
    """Sidecars by rank, and what is wrong with those that could not be understood. Raises OSError.

    5,120 small files are read by several threads: on a shared file system each costs a round trip.
    """

    def read(name: str) -> Sidecar | str:
        try:
            sidecar = Sidecar.model_validate_json(read_bounded(os.path.join(save, FOLDER, name), _LIMIT))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])[:60] or "file"
            return f"{FOLDER}/{name}: {where}: {first['msg'][:120]}"
        if sidecar.rank != rank_of(name):
            return f"{FOLDER}/{name} says that it is of rank {sidecar.rank}"
        return sidecar

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="sidecars") as pool:
        read_all = list(pool.map(read, [name for name in names if rank_of(name) is not None]))
    good = {item.rank: item for item in read_all if isinstance(item, Sidecar)}
    return good, [item for item in read_all if isinstance(item, str)]


def disagreements(sidecars: Mapping[int, Sidecar], save: SaveId, world: int) -> list[str]:
    """Why these sidecars do not describe one save of `world` ranks; empty when they do. Pure."""
    problems = []
    missing = [rank for rank in range(world) if rank not in sidecars]
    if missing:
        problems.append(f"{len(missing)} of {world} sidecars are missing: ranks {_some(missing)}")
    extra = sorted(rank for rank in sidecars if rank >= world)
    if extra:
        problems.append(f"sidecars of ranks that the run does not have: {_some(extra)}")
    for field in ("step", "samples", "updates", "skipped", "lr", "data_version"):
        counted = Counter(getattr(sidecar, field) for sidecar in sidecars.values())
        if len(counted) > 1:
            common = counted.most_common(1)[0][0]
            odd = sorted(rank for rank, sidecar in sidecars.items() if getattr(sidecar, field) != common)
            problems.append(f"{field} is {common!r} on most ranks, another on ranks {_some(odd)}")
    strays = sorted(rank for rank, sidecar in sidecars.items() if sidecar.step != save.step)
    if strays:
        problems.append(f"the folder is of step {save.step}, the sidecars of ranks {_some(strays)} are not")
    foreign = sorted(rank for rank, sidecar in sidecars.items() if sidecar.attempt not in (None, save.attempt))
    if foreign:
        problems.append(f"the folder is of attempt {save.attempt}, the sidecars of ranks {_some(foreign)} are not")
    places = Counter((s.tp, s.pp, s.dp) for s in sidecars.values() if None not in (s.tp, s.pp, s.dp))
    problems.extend(f"{count} ranks say that they hold place {place}" for place, count in places.items() if count > 1)
    return problems


def listed_files(sidecars: Mapping[int, Sidecar], sizes: Mapping[str, int]) -> list[str]:
    """Compare what the sidecars list with `sizes`, the files in the save's folder (name -> bytes). Pure."""
    problems = []
    owners: dict[str, int] = {}
    for rank, sidecar in sorted(sidecars.items()):
        for name, size in sidecar.files.items():
            if name in owners:
                problems.append(f"{name!r} is listed by ranks {owners[name]} and {rank}")
            owners[name] = rank
            if name not in sizes:
                problems.append(f"{name!r} of rank {rank} is missing")
            elif sizes[name] != size:
                problems.append(f"{name!r} of rank {rank} has {sizes[name]} bytes, not {size}")
    unlisted = sorted(name for name in sizes if name.endswith(".distcp") and name not in owners)
    problems.extend(f"{name!r} is listed by no rank" for name in unlisted)
    return problems


def _some(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
