"""What the agents of nodes say about files that they read, and the way to them. Each word is a claim of its node."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from supervisor.checkpoints.reading.findings import Finding

CLAIMS: Final = frozenset(
    {"CRC", "BAD_RECORD", "EXTENT_SHORT", "TRUNCATED", "INTEGRITY", "NON_FINITE", "NEGATIVE_MOMENT", "DENORMAL"}
    | {"UNREADABLE", "CHANGED", "ALL_ZERO"}
)
"""Codes that the reading of a file's content can give; any other from a node makes no sense."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file was read. `items`: how many items its records were checked for; None: none were to be."""

    node: str
    path: str
    size: int
    xxh3: str | None
    items: int | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Unable:
    """The node can't read this file, which says nothing about the file."""

    node: str
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The node reads no more. `away`: the folder is not to be seen from there."""

    node: str
    why: str
    away: bool = False


@dataclass(frozen=True, slots=True)
class Nonsense:
    """The node said something that no reader says: nothing of what it has said before is believed either."""

    node: str
    why: str


Said: TypeAlias = Part | Unable | Gone | Nonsense
Mailbox: TypeAlias = SimpleQueue[Said]


class Crew(Protocol):
    """The agents that may read. All of it may be called from any thread; a node reads for one reading at a time."""

    def begin(self, mailbox: Mailbox) -> str:
        """A reading begins: its name. What its nodes say comes into the mailbox."""
        ...

    def claim(self, reading: str, *, first: bool, but: frozenset[str]) -> frozenset[str]:
        """More nodes that read for this one from now on, none of `but`. `first`: they are taken from others that are not."""
        ...

    def ask(self, reading: str, node: str, message: dict[str, Any]) -> None:
        """Send a `read` to a node of this reading; one that is not there is heard of as gone."""
        ...

    def release(self, reading: str, node: str, distrust: str = "") -> None:
        """The node reads for this one no more. `distrust`: why no reading should have it for a while."""
        ...

    def end(self, reading: str) -> None:
        """A reading is over; its nodes are free."""
        ...
