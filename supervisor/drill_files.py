"""What is kept of a drill: `drills/NNNN.json` in the run directory. Whoever runs one writes it; nobody changes it."""

from __future__ import annotations

import os
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policies.facts import Copied
from supervisor.checkpoints.posix import read_bounded
from supervisor.durable import create_whole
from supervisor.rundir import RunDir

FOLDER: Final = "drills"
LIMIT: Final = 1 << 16
Kind = Literal["shared", "archive"]
Level = Literal["bytes", "load", "update"]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Drill(BaseModel):
    """One drill. Times are wall seconds, `parts` seconds by part in order; `why` says what went wrong, empty when all went well."""

    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True)

    schema_: Literal[1] = Field(alias="schema", default=1)
    number: Annotated[int, Field(ge=1)]
    kind: Kind
    level: Level
    checkpoint: Annotated[str, Field(max_length=64)] = ""
    bytes: Annotated[int, Field(ge=0)] = 0
    began_at: Seconds
    ended_at: Seconds
    parts: dict[str, Seconds] = Field(default_factory=dict)
    ok: bool
    why: Annotated[str, Field(max_length=1000)] = ""

    @property
    def took_s(self) -> float:
        """Seconds from the choice of the save to the last part."""
        return sum(self.parts.values())


def begin(run: RunDir) -> int:
    """Take the next number, by a folder that nobody else can make. Raises OSError."""
    root = run.path(FOLDER)
    os.makedirs(root, mode=0o700, exist_ok=True)
    while True:
        taken = [int(name[:4]) for name in os.listdir(root) if name[:4].isdigit()]
        number = max(taken, default=0) + 1
        try:
            os.mkdir(os.path.join(root, f"{number:04d}"), 0o700)
        except FileExistsError:
            continue
        return number


def keep(run: RunDir, drill: Drill) -> str:
    """Write it down, and return where. Raises OSError."""
    os.makedirs(run.path(FOLDER), mode=0o700, exist_ok=True)
    path = run.path(FOLDER, f"{drill.number:04d}.json")
    create_whole(path, drill.model_dump_json(by_alias=True, indent=1).encode())
    return path


def read_all(run: RunDir) -> tuple[Drill, ...]:
    """The drills of a run, the newest last; what can't be read is left out."""
    found = []
    try:
        names = sorted(os.listdir(run.path(FOLDER)))
    except OSError:
        return ()
    for name in names:
        if not name.endswith(".json"):
            continue
        try:
            found.append(Drill.model_validate_json(read_bounded(run.path(FOLDER, name), LIMIT)))
        except (OSError, ValidationError):
            continue
    return tuple(found)


def newest(drills: tuple[Drill, ...], kind: Kind) -> Drill | None:
    """The last drill of its kind that went well."""
    return next((one for one in reversed(drills) if one.kind == kind and one.ok), None)


def fetched(drills: tuple[Drill, ...]) -> Copied | None:
    """What the last good drill of the archive has fetched, and how long that took: the pace of a real way back."""
    one = newest(drills, "archive")
    seconds = one.parts.get("fetch", 0.0) if one is not None else 0.0
    return Copied(one.checkpoint, one.ended_at, one.bytes, seconds) if one is not None and seconds > 0 else None
