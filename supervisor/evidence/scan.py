"""One line of a log -> what it means. The table is data: `signatures.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal, cast

Role = Literal["root", "cascade", "context", "benign"]
Blames = Literal["reporter", "peer", "nobody"]

LONGEST: Final = 4096
"""Characters of a line that are looked at. A progress bar can put a whole epoch on one line."""

TEXT: Final = 512
"""Characters of a line that are kept."""


@dataclass(frozen=True, slots=True)
class Match:
    """A line that means something: our name for it, its part in the story, its category, whom it points at."""

    kind: str
    role: Role
    category: str
    blames: Blames
    text: str


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table. A line must hold one of `hints` (lower case) and fit `pattern`, where there is one."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str] | None
    role: Role
    category: str
    blames: Blames

    def fits(self, line: str, low: str) -> bool:
        """Does the line (`low`: the same in lower case) fit?"""
        if not any(hint in low for hint in self.hints):
            return False
        return self.pattern is None or self.pattern.search(line) is not None


def read_table(text: str) -> tuple[Signature, ...]:
    """Read a signature table (TOML). Raises ValueError, naming the row, when one is not as it should be."""
    rows = tomllib.loads(text).get("signature", [])
    signatures = []
    for number, row in enumerate(rows, 1):
        role, blames = row.get("role"), row.get("blames", "reporter")
        if role not in ("root", "cascade", "context", "benign") or blames not in ("reporter", "peer", "nobody"):
            raise ValueError(f"signature {number}: role {role!r}, blames {blames!r}")
        hints = tuple(str(hint) for hint in row.get("hint", ()))
        if not hints or any(hint != hint.lower() for hint in hints):
            raise ValueError(f"signature {number}: hints must be there and in lower case: {hints!r}")
        pattern = str(row.get("pattern", ""))
        compiled = re.compile(pattern, re.IGNORECASE) if pattern else None
        signatures.append(
            Signature(str(row["kind"]), hints, compiled, cast("Role", role), str(row["category"]), blames),
        )
    return tuple(signatures)


@cache
def table() -> tuple[Signature, ...]:
    """Return the table that ships with relight."""
    return read_table(resources.files("supervisor.evidence").joinpath("signatures.toml").read_text("utf-8"))


def scan(line: str) -> Match | None:
    """What this line means, or None. Lines are judged alone; a traceback is known by its last line."""
    line = line[:LONGEST]
    low = line.lower()
    for signature in table():
        if signature.fits(line, low):
            return Match(signature.kind, signature.role, signature.category, signature.blames, line.strip()[:TEXT])
    return None
