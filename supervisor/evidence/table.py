"""The table of line kinds, read from TOML and checked. It is data: `signatures/*.toml`, and files that a site adds.

Columns of a row:
  kind      our name for it, unique
  pattern   Python regular expression over the cleaned line; names of its groups say what they hold
            (rank, local, node, peer, pid, pci, task, tasks, seq, step; a digit behind the name is ignored)
  find      what the multi-pattern engine looks for in the raw bytes; the pattern itself when it is left out. It must be
            at least as wide as the pattern; no lookaround, no backreference
  case      true: upper and lower case differ (both expressions); false when left out
  role      root, cascade (it follows from another rank's end), context, benign
  grade     1 weak (an exit code), 2 a symptom, 3 the program names the cause, 4 the system itself does; a cascade of
            2 tells who waited
  category  the table of docs/diagnosis.md
  blames    reporter (default), peer, nobody
  restart   may a plain restart on the same nodes and the same data help; the category's default when left out
  source    where the line comes from
  example   a line that must be of this kind; it is the row's test
The first row that fits wins, so the particular stands above the general.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, cast

Role = Literal["root", "cascade", "context", "benign"]
Blames = Literal["reporter", "peer", "nobody"]
ROLES: Final = ("root", "cascade", "context", "benign")
BLAMES: Final = ("reporter", "peer", "nobody")

CATEGORIES: Final = frozenset(
    [
        "hardware.gpu",
        "hardware.gpu_memory",
        "hardware.nvlink",
        "hardware.network",
        "hardware.host",
        "oom.gpu",
        "oom.host",
        "storage.full",
        "storage.io",
        "storage.ckpt_corrupt",
        "data",
        "numeric",
        "software.user",
        "software.framework",
        "software.env",
        "config",
        "scheduler.timelimit",
        "scheduler.preempt",
        "scheduler.cancel",
        "scheduler.nodefail",
        "performance.straggler",
        "hang.unknown",
        "none",
    ],
)
RESTART_HELPS: Final = frozenset(
    {"storage.io", "software.framework", "hang.unknown", "hardware.network", "scheduler.timelimit", "scheduler.preempt"}
    | {"scheduler.cancel", "scheduler.nodefail", "none"}
)
"""Categories for which a plain restart is worth a try unless the row says otherwise."""

_NAMED: Final = re.compile(r"\(\?P<\w+>")
_COLUMNS: Final = frozenset(
    ["kind", "pattern", "find", "case", "role", "grade", "category", "blames", "restart", "source", "example"],
)


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table."""

    kind: str
    pattern: re.Pattern[str]
    find: str
    case: bool
    role: Role
    grade: int
    category: str
    blames: Blames
    restart: bool
    source: str
    example: str


def read_table(text: str) -> tuple[Signature, ...]:
    """Read rows (TOML). Raises ValueError, naming the row, when one is not as it should be."""
    rows = tomllib.loads(text).get("signature", [])
    if not isinstance(rows, list):
        raise ValueError("signature: must be an array of tables")  # noqa: TRY004 - one kind of error for a bad table
    return tuple(_row(number, row) for number, row in enumerate(rows, 1))


def _row(number: int, row: Any) -> Signature:
    where = f"signature {number}"
    if not isinstance(row, dict):
        raise ValueError(f"{where}: {row!r} is no table")  # noqa: TRY004 - one kind of error for a bad table
    if row.get("kind"):
        where += f" ({row['kind']!r})"
    for name in sorted(set(row) - _COLUMNS):
        raise ValueError(f"{where}: there is no column {name!r}{_near(name, _COLUMNS)}")
    kind, pattern, category = str(row.get("kind", "")), str(row.get("pattern", "")), row.get("category")
    role, blames, grade = (
        row.get("role"),
        row.get("blames", "reporter"),
        row.get("grade", 1 if row.get("role") == "cascade" else 2),
    )
    if not kind or not pattern:
        raise ValueError(f"{where}: kind and pattern must be there")
    for name, value, right in (("role", role, ROLES), ("blames", blames, BLAMES), ("grade", grade, (1, 2, 3, 4))):
        if value not in right:
            raise ValueError(f"{where}: {name} {value!r}: one of {', '.join(map(str, right))} is wanted")
    if category not in CATEGORIES:
        raise ValueError(
            f"{where}: category {category!r} is none of the table in docs/diagnosis.md{_near(category, CATEGORIES)}"
        )
    case = row.get("case", False) is True
    try:
        compiled = re.compile(pattern, 0 if case else re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"{where}: pattern: {error}") from None
    return Signature(
        kind=kind,
        pattern=compiled,
        find=str(row.get("find") or _NAMED.sub("(", pattern)),
        case=case,
        role=cast("Role", role),
        grade=grade,
        category=str(category),
        blames=cast("Blames", blames),
        restart=bool(row.get("restart", category in RESTART_HELPS)),
        source=str(row.get("source", "")),
        example=str(row.get("example", "")),
    )


def _near(name: object, right: Iterable[str]) -> str:
    close = get_close_matches(str(name), right, 1)
    return f". Did you mean {close[0]!r}?" if close else ""


def join(parts: Iterable[tuple[Signature, ...]]) -> tuple[Signature, ...]:
    """One table of several. Raises ValueError when a kind is there twice."""
    rows = tuple(row for part in parts for row in part)
    seen: set[str] = set()
    for row in rows:
        if row.kind in seen:
            raise ValueError(f"signature {row.kind!r} is there twice; a row of a site needs a kind of its own")
        seen.add(row.kind)
    return rows


@cache
def table() -> tuple[Signature, ...]:
    """Return the table that ships with relight."""
    folder = resources.files("supervisor.evidence").joinpath("signatures")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return join(read_table(file.read_text("utf-8")) for file in files)


def with_site(text: str) -> tuple[Signature, ...]:
    """The shipped table with a site's own rows before it, so that a site may say better. Raises ValueError."""
    return join((read_table(text), table()))
