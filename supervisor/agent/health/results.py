"""What a check of the node says: healthy, unhealthy or unknown. A check that could not look is unknown, never healthy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

TEXT: Final = 300
"""Characters of a text that are kept; a site's command may print anything."""

_NAME: Final = 120


class State(StrEnum):
    """The three answers."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer. `kind` says of what sort an unhealthy one is; `mark` tells two unhealthy ones of a kind apart."""

    state: State
    text: str
    kind: str = ""
    mark: str = ""


def healthy(text: str) -> Verdict:
    """It looked, and all is well."""
    return Verdict(State.HEALTHY, text)


def unhealthy(kind: str, text: str, mark: str = "") -> Verdict:
    """It looked, and something is wrong."""
    return Verdict(State.UNHEALTHY, text, kind, mark)


def unknown(why: str) -> Verdict:
    """It could not look, or what came back makes no sense."""
    return Verdict(State.UNKNOWN, why)


class Check(Protocol):
    """One look at the node; it may answer for several things at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it answers for; unique on the node."""
        ...

    async def look(self) -> Mapping[str, Verdict]:
        """Look now. It ends within a deadline of its own and never blocks the loop."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a check said at `when` (wall seconds at its end) after `took_s`.

    It has said so since `since`; at `before` it last could look and said something else (None: it never has). `attempt`
    was the newest one at `since`.
    """

    name: str
    verdict: Verdict
    when: float
    took_s: float
    since: float
    before: float | None
    attempt: int

    def differs(self, other: Result) -> bool:
        """Does it say something else? Texts may differ in figures that matter to nobody."""
        return _said(self.verdict) != _said(other.verdict)

    def wire(self) -> dict[str, Any]:
        """The form of docs/contracts.md, section 4."""
        return {
            "name": printable(self.name, _NAME),
            "state": self.verdict.state.value,
            "kind": self.verdict.kind,
            "text": printable(self.verdict.text, TEXT),
            "when": round(self.when, 3),
            "took_s": round(self.took_s, 3),
            "since": round(self.since, 3),
            "before": None if self.before is None else round(self.before, 3),
            "attempt": self.attempt,
        }


def _said(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.state.value, verdict.kind, verdict.mark


def printable(text: str, limit: int) -> str:
    """One line that a terminal can be shown, cut to `limit` characters."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()
