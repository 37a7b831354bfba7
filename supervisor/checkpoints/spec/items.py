"""One line of a comparison: what was asked, what is there, and how they stand to each other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How what is there stands to what must be."""

    AGREES = "agree"
    MISSING = "missing"
    UNEXPECTED = "unexpected"
    DTYPE = "other dtype"
    SHAPE = "other shape"
    COVERAGE = "covers other elements"
    DIFFERS = "differs"
    UNSAID = "not said"  # the save does not say it; a note
    UNREAD = "not read"  # it could not be looked at now; never a difference


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: tensor, bucket, object, coverage, need or setting. `expected` and `found` for people."""

    kind: str
    name: str
    state: State
    expected: str = ""
    found: str = ""


def form(dtype: str, shape: tuple[int, ...]) -> str:
    """A tensor's dtype and shape as people read them."""
    return f"{dtype} [{', '.join(map(str, shape))}]"
