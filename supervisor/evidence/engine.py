"""Many patterns over big blocks of bytes in one pass -> which lines are worth a look.

Hyperscan does it at the speed of the disk; where it cannot be imported (no wheel for the machine), `re` gives the same
answers slowly. Neither decides what a line means: that is `scan.fit` over the rows named here.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from supervisor.evidence import kept
from supervisor.evidence.table import Signature

ROWS_AT_MOST: Final = 4096
"""Rows of a table: a find is one number, the byte behind its end times this, plus its row."""


class Engine(Protocol):
    """Finds the rows of one table."""

    def scan(self, block: bytes) -> list[int]:
        """All finds in a block of whole lines, sorted: end * ROWS_AT_MOST + row."""
        ...


class Hyperscan:
    """The measured engine: facts are in docs/diagnosis.md. Raises ImportError where it is not installed.

    `cache`: a folder in which the compiled rows are looked for, and kept.
    """

    def __init__(self, rows: Sequence[Signature], cache: str | None = None) -> None:
        import hyperscan  # noqa: PLC0415 - the fallback needs it to be absent

        flags = [hyperscan.HS_FLAG_MULTILINE | (0 if row.case else hyperscan.HS_FLAG_CASELESS) for row in rows]
        finds = [row.find.encode() for row in rows]
        key = hashlib.sha256(
            repr((getattr(hyperscan, "__version__", ""), platform.machine(), flags, finds)).encode()
        ).hexdigest()
        self._db: Any = _loaded(hyperscan, cache, key) if cache is not None else None
        if self._db is None:
            self._db = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            self._db.compile(expressions=finds, ids=list(range(len(rows))), flags=flags)
            self._db.scratch = hyperscan.Scratch(self._db)
            if cache is not None:
                kept.save(cache, key, hyperscan.dumpb(self._db))

    def scan(self, block: bytes) -> list[int]:
        """See Engine."""
        found: list[int] = []
        add = found.append
        self._db.scan(block, match_event_handler=lambda row, _start, end, _flags, _context: add(end << 12 | row))
        found.sort()
        return found


def _loaded(hyperscan: Any, cache: str, key: str) -> Any | None:
    """What was compiled at an earlier start; None when there is none, or none for this processor."""
    blob = kept.load(cache, key)
    if blob is None:
        return None
    try:
        found = hyperscan.loadb(blob, hyperscan.HS_MODE_BLOCK)
        found.scratch = hyperscan.Scratch(found)
        found.scan(b"\n", match_event_handler=lambda *_: None)
    except Exception:  # noqa: BLE001 - the library has many kinds of errors; all mean that it must be compiled
        return None
    return found


class Regular:
    """The same answers from the standard library, at 1 to 2 MB/s."""

    def __init__(self, rows: Sequence[Signature]) -> None:
        self._rows = [re.compile(r.find.encode(), (0 if r.case else re.IGNORECASE) | re.MULTILINE) for r in rows]

    def scan(self, block: bytes) -> list[int]:
        """See Engine."""
        return sorted(
            match.end() << 12 | number for number, row in enumerate(self._rows) for match in row.finditer(block)
        )


def refused(row: Signature) -> str:
    """Why no engine can look for this row; empty when it can."""
    try:
        re.compile(row.find.encode())
    except re.error as error:
        return str(error)
    if re.search(r"\(\?(=|!|<=|<!|P=)|\\[1-9]", row.find):
        return "it looks around or back"  # `re` could, but the answers must not hang on the engine
    try:
        Hyperscan([row])
    except ImportError:
        pass
    except Exception as error:  # noqa: BLE001 - the library has one kind of error, and its name is not there without it
        return str(error)
    return ""


def engine(rows: Sequence[Signature]) -> Engine:
    """The quickest engine that this machine has. Raises ValueError when the table is too long."""
    if len(rows) > ROWS_AT_MOST:
        raise ValueError(f"{len(rows)} signatures: {ROWS_AT_MOST} at most")
    try:
        return Hyperscan(rows, kept.cache())
    except ImportError:
        return Regular(rows)
