"""Tensors, and where their parts lie in the files: plain data that passes from the reading process to ours."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

NO_PAYLOAD: Final = (1 << 64) - 1
"""An item whose number of data bytes is not known: an object, or a tensor of a kind that is not known."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A logical tensor. `chunks`: how many."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: int


@dataclass(frozen=True, slots=True)
class Extents:
    """The items of one file, in the order in which they lie; columns, since there are many.

    `starts` and `lengths` in bytes; `payloads`: bytes of elements, or NO_PAYLOAD; `items`: positions in a list of names.
    """

    starts: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    payloads: array[int] = field(default_factory=lambda: array("Q"))
    items: array[int] = field(default_factory=lambda: array("I"))

    @property
    def end(self) -> int:
        """Where the last item ends: the size that the file must have."""
        return self.starts[-1] + self.lengths[-1] if self.starts else 0


def is_plain_name(name: Any) -> bool:
    """One name of a file in the save's own folder: a path could lead out of it."""
    plain = type(name) is str and 0 < len(name) <= 255 and name not in {".", ".."}
    return plain and "/" not in name and "\0" not in name and name.isprintable()
