"""What a store says about its saves beside their states: pins, copies, re-reads, deletions. Only read here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policies.facts import CheckpointState
from slurm.cluster import Unreadable
from supervisor.checkpoints import pins, places, posix, publishing, scrubbing
from supervisor.checkpoints.manifest import RECORD_LIMIT
from supervisor.checkpoints.pins import Pin
from supervisor.checkpoints.store import PosixStore
from supervisor.checkpoints.tree import SaveId, Tree

R = TypeVar("R", bound="_Record")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    schema_: Literal[1] = Field(alias="schema", default=1)


class _Begun(_Record):
    began_at: float


class _Archived(_Record):
    """What of ARCHIVED is told; the rest of it may be of a newer relight."""

    place: str
    verified_at: float


@dataclass(frozen=True, slots=True)
class Account:
    """One save. Times are wall seconds; None: it never was, or nobody wrote it down.

    `archive`: the place of its verified copy. `origin`: saved by the ranks, restored from an archive, adopted from `data`.
    """

    state: CheckpointState
    began_at: float | None
    pin: Pin | None
    archive: str | None
    archived_at: float | None
    read_at: float | None
    origin: Literal["saved", "restored", "adopted"]
    data: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """A save that retention took away. `pending`: something of it still takes room."""

    id: str
    at: float | None
    pending: bool


@dataclass(frozen=True, slots=True)
class Accounts:
    """All saves of a store, newest first, and those that were deleted. `latest`: what the pointer names."""

    saves: tuple[Account, ...]
    deleted: tuple[Deleted, ...]
    latest: str | None


def read(root: str, store: PosixStore) -> Accounts | Unreadable:
    """All that the store in `root` says of its saves. Hashes nothing."""
    states = store.scan()
    if isinstance(states, Unreadable):
        return states
    tree = Tree(root)
    try:
        return Accounts(
            tuple(account(tree, state) for state in reversed(states)),
            _deleted(tree, store),
            publishing.read_latest(tree),
        )
    except OSError as error:
        return Unreadable(f"{root}: {posix.why(error)}")


def account(tree: Tree, state: CheckpointState) -> Account:
    """What is known of one save. Raises OSError."""
    save = SaveId.parse(state.id)
    begun = _record(tree.mark(save, "IN_PROGRESS"), _Begun)
    place = places.find(tree, save)
    archived = _record(place.mark("ARCHIVED"), _Archived)
    return Account(
        state,
        began_at=begun.began_at if begun else None,
        pin=pins.read(tree, state.id) if state.pinned else None,
        archive=archived.place if archived else None,
        archived_at=archived.verified_at if archived else None,
        read_at=scrubbing.read_at(place.mark(scrubbing.READ)),
        origin=place.kind,
        data=place.data,
    )


def _deleted(tree: Tree, store: PosixStore) -> tuple[Deleted, ...]:
    pending = set(store.pending_deletions())
    found = []
    for name in reversed(posix.names_in(tree.deleted)):
        try:
            save = SaveId.parse(name)
        except ValueError:
            continue
        found.append(Deleted(name, _written_at(tree.tombstone(save)), name in pending))
    return tuple(found)


def _written_at(path: str) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return None


def _record(path: str, kind: type[R]) -> R | None:
    """A record beside the seal; None when it is not there or is none: it tells something, and decides nothing."""
    try:
        return kind.model_validate_json(posix.read_bounded(path, RECORD_LIMIT))
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
