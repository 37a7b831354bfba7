"""Saves that a person wants to be kept: one file each in `pins/`, made and taken away whole.

Retention looks before and after it marks a save as deleted, and whoever pins looks for that mark afterwards; so a pin and
a deletion that meet can't both believe that they were first.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from policies.facts import CheckpointState
from supervisor import durable
from supervisor.checkpoints import places, posix
from supervisor.checkpoints.tree import SaveId, Tree

_LIMIT = 16 << 10
WHY_MAX = 500


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    schema_: Literal[1] = Field(alias="schema", default=1)
    id: str
    why: Annotated[str, StringConstraints(max_length=WHY_MAX)]
    who: Annotated[str, StringConstraints(max_length=200)]
    at: float


@dataclass(frozen=True, slots=True)
class Pin:
    """Who wants the save `id` to be kept, why, and since when (wall seconds; None: the file can't be understood)."""

    id: str
    why: str
    who: str
    at: float | None


class BeingDeletedError(Exception):
    """The save is deleted, or is being deleted; it could not be pinned."""


def pinned(tree: Tree) -> frozenset[str]:
    """The ids of all pinned saves, by name alone: a pin that can't be read keeps its save too.

    Raises OSError, also where there is no folder of pins: then nobody can say what is pinned (`PosixStore.create` makes it).
    """
    return frozenset(name for name in os.listdir(tree.pins) if not name.endswith(".tmp"))


def marked(tree: Tree, states: Iterable[CheckpointState]) -> list[CheckpointState]:
    """The states with what is pinned. While that can't be seen all of them are: looking and restoring go on, deleting does not."""
    try:
        names: Collection[str] | None = pinned(tree)
    except FileNotFoundError:
        names = ()  # a store from before there were pins; retention makes sure of it by itself
    except OSError:
        names = None
    return [replace(state, pinned=names is None or state.id in names) for state in states]


def read(tree: Tree, checkpoint: str) -> Pin | None:
    """The pin of a save; None when it has none. Raises OSError."""
    try:
        data = posix.read_bounded(os.path.join(tree.pins, checkpoint), _LIMIT)
        found = _Record.model_validate_json(data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        return Pin(checkpoint, "its file can't be understood", "", None)
    return Pin(checkpoint, found.why, found.who, found.at)


def pin(tree: Tree, wanted: Pin, step: posix.Step = posix.no_step) -> bool:
    """Pin a save; True when this call did, False when it was pinned before (that pin stands).

    Raises BeingDeletedError, OSError, ValueError for what is no save's id or no pin.
    """
    save = SaveId.parse(wanted.id)
    posix.make_folder(tree.pins)
    path = os.path.join(tree.pins, str(save))
    record = _Record(id=str(save), why=wanted.why, who=wanted.who, at=wanted.at or 0.0)
    made = posix.create_whole(path, record.model_dump_json(by_alias=True).encode() + b"\n", step)
    if posix.exists(tree.tombstone(save)) and places.find(tree, save).kind != "restored":
        if made:
            _take_away(path)
        raise BeingDeletedError(f"{save} was deleted")
    return made


def unpin(tree: Tree, checkpoint: str) -> bool:
    """Take a pin away; True when there was one. Raises OSError, ValueError for what is no save's id."""
    path = os.path.join(tree.pins, str(SaveId.parse(checkpoint)))
    try:
        _take_away(path)
    except FileNotFoundError:
        return False
    return True


def _take_away(path: str) -> None:
    os.unlink(path)
    durable.sync_folder(os.path.dirname(path))
