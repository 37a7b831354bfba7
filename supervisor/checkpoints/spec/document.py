"""The document of what a save must hold: JSON, checked when it is read, and the digest that names it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, ValidationError, model_validator

from supervisor.checkpoints.posix import read_bounded
from supervisor.errors import UserError

DOCUMENT_LIMIT = 256 << 20
"""Bytes. A flat optimizer over 640 nodes makes about 1 MB, a tensor a parameter and layer some ten."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Dtype = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{1,30}$")]
Shape = tuple[NonNegativeInt, ...]
Role = Literal["weight", "master", "exp_avg", "exp_avg_sq", "state"]
Origin = Literal["megatron-arguments", "arguments-in-save", "training-script", "baseline"]
Plain = bool | int | float | str | list[bool | int | float | str]
STATES: tuple[Role, ...] = ("master", "exp_avg", "exp_avg_sq")
"""What an optimizer holds for every element of a weight."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TensorEntry(_Model):
    """One logical tensor. `of`: the weight that it belongs to, for what an optimizer holds."""

    name: Name
    dtype: Dtype
    shape: Shape
    role: Role = "state"
    of: Name | None = None


class FlatGroup(_Model):
    """One model-parallel rank's optimizer, flat in buckets (dp_reshardable): each kind holds all its elements, in order.

    `least` and `most` elements of each kind: Megatron begins each parameter at a multiple of 64.
    """

    prefix: Name
    kinds: tuple[Name, ...]
    dtype: Dtype
    least: NonNegativeInt
    most: NonNegativeInt


class Need(_Model):
    """A question that the save must answer, and the places of which one is enough (see Held.places)."""

    question: Name
    any_of: Annotated[tuple[Name, ...], Field(min_length=1)]


class Document(_Model):
    """What a save must hold. `optional`: patterns of names that may be there; `settings`: places and their values."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    kind: Literal["relight-spec"] = "relight-spec"
    origin: Origin
    about: dict[str, str] = {}
    tensors: tuple[TensorEntry, ...] = ()
    flat: tuple[FlatGroup, ...] = ()
    objects: tuple[Name, ...] = ()
    optional: tuple[Name, ...] = ()
    needs: tuple[Need, ...] = ()
    settings: dict[str, Plain] = {}
    ignored: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _adds_up(self) -> Document:
        twice = [name for name, n in Counter([*(t.name for t in self.tensors), *self.objects]).items() if n > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        if not self.tensors:
            raise ValueError("it names no tensor: every save would do")
        shapes = {entry.name: entry.shape for entry in self.tensors if entry.role == "weight"}
        for entry in self.tensors:
            if entry.role in STATES and (entry.of not in shapes or shapes[entry.of] != entry.shape):
                raise ValueError(f"{entry.name} does not cover the elements of a weight")
        return self

    def to_bytes(self) -> bytes:
        """The file's content, one line of JSON; people read it with `relight checkpoints show`."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"

    @property
    def digest(self) -> str:
        """sha256 of the content: which document a save was accepted against."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def parse(data: bytes, where: str) -> Document:
    """A document from its bytes. Raises UserError, which names `where` and the entry."""
    try:
        return Document.model_validate_json(data)
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors(include_input=False, include_url=False)[0])
        at = ".".join(map(str, first["loc"]))[:80]
        raise UserError(f"{where}: it is no spec: {f'{at}: ' if at else ''}{first['msg'][:160]}") from None


def read(path: str) -> Document:
    """A document from a file. Raises UserError."""
    try:
        data = read_bounded(path, DOCUMENT_LIMIT)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    return parse(data, os.fspath(path))
