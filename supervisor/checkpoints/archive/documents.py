"""What the archive writes, as models. A key is RUN, then the folder, then the save's id."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints

from supervisor.checkpoints.manifest import Sha256, Sum
from supervisor.checkpoints.sidecars import Text

MANIFESTS: Final = "manifests"
"""The manifest's bytes: a copy of this save was begun."""
COPIED: Final = "copied"
"""Every file was copied, and read again where it has landed. What COMMITTED is in the store."""
DELETED: Final = "deleted"
"""Deleted by the archive's own retention; its data may still be going."""
DAMAGED: Final = "damaged"
"""What was copied is no longer what it was: found when it was wanted back, and read twice."""
FOLDERS: Final = (MANIFESTS, COPIED, DELETED, DAMAGED)
MADE: Final = "made"
"""A document in each folder from the beginning: a folder that is not there is no empty one."""

INDEX: Final = "index"
"""Of the run's record, in its folder `record`; there from the beginning too."""

NAME_MOST: Final = 400


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True)


class Document(_Part):
    """One document. Of one written by a newer relight, fields that are not known are left out."""

    schema_: Literal[1] = Field(alias="schema", default=1)

    def to_bytes(self) -> bytes:
        """The document, one line."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


class Copied(Document):
    """`verified_at`: wall seconds at which the last file had been read again."""

    id: str
    manifest_sha256: Sha256
    bytes: NonNegativeInt
    verified_at: float


class Deleted(Document):
    """A tombstone."""

    id: str
    at: float


class Damaged(Document):
    """Why a copy can't be used."""

    id: str
    reasons: tuple[Text, ...]
    at: float


class Made(Document):
    """Whose archive this is, and since when."""

    run: str
    at: float


class KeptFile(_Part):
    """One file of a run's record: its pieces lie under their sums, in this order."""

    size: NonNegativeInt
    xxh3: Sum
    objects: tuple[Sum, ...]


RecordPath = Annotated[str, StringConstraints(pattern=r"^[^/\x00][^\x00]*$", max_length=NAME_MOST)]


class Index(Document):
    """All files of a run's record, by their path in the run directory."""

    at: float
    files: dict[RecordPath, KeptFile]
