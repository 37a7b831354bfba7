"""The files that relight writes about a save, as models, and the reading of a committed one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StringConstraints, ValidationError

from policies.facts import Batch, Counters, Expected
from supervisor.checkpoints.places import RESTORED, Place
from supervisor.checkpoints.posix import Stamp, read_bounded, stamp_of
from supervisor.checkpoints.sidecars import Digest, Next, Text
from supervisor.checkpoints.tree import SaveId

MANIFEST_LIMIT = 64 << 20
"""Bytes. 5,120 ranks and as many files make about 2 MB."""
RECORD_LIMIT = 1 << 20
METADATA_JSON = "metadata.json"
LATE = frozenset({METADATA_JSON, "integrity.json"})
"""Megatron writes these after `.metadata`, so they may come after the seal; no loader takes state from them."""

Sum = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
RankKey = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,6})$")]
# A manifest is a claim about files of one folder: a name with a slash could lead out of it.
FileName = Annotated[str, StringConstraints(pattern=r"^[^/\x00]{1,255}$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True)

    def to_bytes(self) -> bytes:
        """The file's content, one line."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


class FileEntry(_Model):
    """One file of a save: bytes and content sum."""

    size: NonNegativeInt
    xxh3: Sum


class RankEntry(_Model):
    """What one rank must have loaded."""

    digest: Digest | None
    next: Next | None
    tp: NonNegativeInt | None
    pp: NonNegativeInt | None
    dp: NonNegativeInt | None


class CountersEntry(_Model):
    """Both ledgers and the schedule at the save."""

    step: NonNegativeInt
    samples: NonNegativeInt
    updates: NonNegativeInt
    skipped: NonNegativeInt
    lr: float | None
    data_version: Text


class StateEntry(_Model):
    """What the save's own state says of it. `counters`: of iteration, samples, dropped, updates, skipped, lr what is known."""

    format: Text
    save_id: Text | None
    counters: dict[Text, int | float]


class SpecEntry(_Model):
    """The spec that a save was accepted against: its digest, and where it came from."""

    digest: Sha256
    origin: Text


class Manifest(_Model):
    """manifest.json. `limited`: no sidecars; what the save proves of itself is all that was checked.

    `repairs`: files that are written in the view and not in the data, with their whole content.
    """

    schema_: Literal[1] = Field(alias="schema", default=1)
    id: str
    attempt: NonNegativeInt
    step: NonNegativeInt
    world: PositiveInt
    saved_at: float
    completed_at: float
    bytes: NonNegativeInt
    files: dict[FileName, FileEntry]
    counters: CountersEntry | None
    ranks: dict[RankKey, RankEntry]
    limited: bool
    checks: dict[str, str]
    archive: Any = None
    state: StateEntry | None = None
    repairs: dict[FileName, Text] = Field(default_factory=dict)
    spec: SpecEntry | None = None

    def same_save(self, other: Manifest) -> bool:
        """Do both describe the same content? When each was written does not matter."""
        # An archive copy, the wording of the checks and what is told of the state may differ between two versions of
        # relight. What the framework writes last may have come between two sealers.
        ignored = {"completed_at", "checks", "archive", "state", "repairs", "files", "bytes", "spec"}
        shared = self.files.keys() & other.files.keys()
        return (
            self.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)
            and (self.files.keys() ^ other.files.keys()) <= LATE
            and all(self.files[name] == other.files[name] for name in shared)
        )


class Outcome(_Model):
    """What a save came to: the content of OUTCOME, and of COMMITTED, BROKEN or ABANDONED after it."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    outcome: Literal["COMMITTED", "BROKEN", "ABANDONED"]
    completed_at: float | None = None
    manifest_sha256: Sha256 | None = None
    reasons: tuple[str, ...] = ()


class Restored(_Model):
    """RESTORED: this copy is whole. `place`: the archive it came from. `completed_at`: when the save was first sealed."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    id: str
    manifest_sha256: Sha256
    place: Text
    restored_at: float
    completed_at: float


class Archived(_Model):
    """ARCHIVED: there is a copy in `place`, and every file of it was read again there."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    place: Text
    manifest_sha256: Sha256
    verified_at: float


class CompletedList(_Model):
    """completed.json: ids in the order of completion; `generation` rises with each change."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    generation: NonNegativeInt
    completed: tuple[str, ...]


class UnsoundError(Exception):
    """A file was read in full and is not what it must be."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A manifest that COMMITTED, or RESTORED beside a copy, vouches for, and where the data lies. `sha256` of its bytes.

    `completed_at`: when the save was sealed; `settled_at`: since when it stands at this place. Both in wall seconds.
    """

    manifest: Manifest
    sha256: str
    completed_at: float
    settled_at: float
    place: Place


class CommittedReader:
    """Reads committed manifests; one that was checked is not read again while neither file changes."""

    def __init__(self) -> None:
        self._known: dict[SaveId, tuple[Stamp, Stamp, Committed]] = {}

    def read(self, save: SaveId, place: Place) -> Committed:
        """The manifest of a save that is whole at this place. Raises FileNotFoundError, OSError, or UnsoundError."""
        manifest_path = place.mark("manifest.json")
        vouching_path = place.mark(RESTORED if place.kind == "restored" else "COMMITTED")
        stamps = (stamp_of(os.lstat(manifest_path)), stamp_of(os.lstat(vouching_path)))
        known = self._known.get(save)
        if known is not None and known[:2] == stamps and known[2].place == place:
            return known[2]
        data = read_bounded(manifest_path, MANIFEST_LIMIT)
        if place.kind == "restored":
            committed = _verify_restored(save, data, read_restored(vouching_path), place)
        else:
            committed = _verify(save, data, read_outcome(vouching_path), place)
        self._known[save] = (*stamps, committed)
        return committed

    def forget_all_but(self, saves: set[SaveId]) -> None:
        """Drop what is remembered of saves that are gone; a manifest may take megabytes."""
        for save in tuple(self._known):
            if save not in saves:
                self._known.pop(save, None)


def read_outcome(path: str) -> Outcome:
    """Read one record. Raises FileNotFoundError, OSError, or UnsoundError."""
    try:
        return Outcome.model_validate_json(read_bounded(path, RECORD_LIMIT))
    except ValidationError:
        raise UnsoundError(f"{os.path.basename(path)} is not a record of this store") from None


def read_restored(path: str) -> Restored:
    """Read what vouches for a restored copy. Raises FileNotFoundError, OSError, or UnsoundError."""
    try:
        return Restored.model_validate_json(read_bounded(path, RECORD_LIMIT))
    except ValidationError:
        raise UnsoundError(f"{os.path.basename(path)} is not a record of this store") from None


def parse_manifest(save: SaveId, data: bytes) -> Manifest:
    """Raises UnsoundError when the bytes are no manifest of `save`."""
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise UnsoundError(f"manifest.json is not a manifest: {first['msg'][:120]}") from None
    if (manifest.id, manifest.attempt, manifest.step) != (str(save), save.attempt, save.step):
        raise UnsoundError(f"manifest.json is of another save ({manifest.id[:40]!r})")
    if manifest.bytes != sum(entry.size for entry in manifest.files.values()):
        raise UnsoundError("manifest.json does not add up: its bytes are not those of its files")
    if not {".", "..", "relight"}.isdisjoint(manifest.files):
        raise UnsoundError("manifest.json names a folder as a file")
    return manifest


def _verify(save: SaveId, data: bytes, outcome: Outcome, place: Place) -> Committed:
    digest = hashlib.sha256(data).hexdigest()
    if outcome.outcome != "COMMITTED" or outcome.completed_at is None:
        raise UnsoundError("COMMITTED does not say that the save is completed")
    if outcome.manifest_sha256 != digest:
        raise UnsoundError("manifest.json is not the one that COMMITTED vouches for")
    return Committed(parse_manifest(save, data), digest, outcome.completed_at, outcome.completed_at, place)


def _verify_restored(save: SaveId, data: bytes, said: Restored, place: Place) -> Committed:
    digest = hashlib.sha256(data).hexdigest()
    if said.id != str(save):
        raise UnsoundError(f"RESTORED is of another save ({said.id[:40]!r})")
    if said.manifest_sha256 != digest:
        raise UnsoundError("manifest.json is not the one that RESTORED vouches for")
    return Committed(parse_manifest(save, data), digest, said.completed_at, said.restored_at, place)


def expected_of(committed: Committed) -> Expected:
    """What every rank must say it has loaded."""
    manifest = committed.manifest
    digests: Mapping[int, str] = {int(r): entry.digest for r, entry in manifest.ranks.items() if entry.digest}
    batches = {int(r): Batch(*entry.next) for r, entry in manifest.ranks.items() if entry.next}
    return Expected(manifest.id, counters_of(manifest), digests, batches, manifest.limited)


def counters_of(manifest: Manifest) -> Counters | None:
    """Both ledgers at the save; None for a limited one."""
    kept = manifest.counters
    return Counters(kept.step, kept.samples, kept.updates, kept.skipped, kept.lr) if kept else None
