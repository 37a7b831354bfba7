"""Many patterns over big blocks of bytes in one pass -> which lines are worth a look.

Hyperscan does it at the speed of the disk; where it cannot be imported (no wheel for the machine), `re` gives the same
answers slowly. Neither decides what a line means: that is `scan.fit` over the rows named here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from supervisor.evidence.table import Signature

Hit = Callable[[int, int], None]
"""Called with (row, end): a row of the table was found, and the byte behind its end."""


class Engine(Protocol):
    """Finds the rows of one table."""

    def scan(self, block: bytes, hit: Hit) -> None:
        """Call `hit` for every find in the block, which holds whole lines. Ends do not fall within one another's order."""
        ...


class Hyperscan:
    """The measured engine: facts are in docs/diagnosis.md."""

    def __init__(self, rows: Sequence[Signature]) -> None:
        import hyperscan  # noqa: PLC0415 - the fallback needs it to be absent

        flags = [hyperscan.HS_FLAG_MULTILINE | (0 if row.case else hyperscan.HS_FLAG_CASELESS) for row in rows]
        self._db: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._db.compile(expressions=[row.find.encode() for row in rows], ids=list(range(len(rows))), flags=flags)
        self._db.scratch = hyperscan.Scratch(self._db)

    def scan(self, block: bytes, hit: Hit) -> None:
        """See Engine."""
        self._db.scan(block, match_event_handler=lambda row, _start, end, _flags, _context: hit(row, end))


class Regular:
    """The same answers from the standard library, at 1 to 2 MB/s."""

    def __init__(self, rows: Sequence[Signature]) -> None:
        self._rows = [re.compile(r.find.encode(), (0 if r.case else re.IGNORECASE) | re.MULTILINE) for r in rows]

    def scan(self, block: bytes, hit: Hit) -> None:
        """See Engine."""
        found = [(match.end(), number) for number, row in enumerate(self._rows) for match in row.finditer(block)]
        for end, number in sorted(found):
            hit(number, end)


def engine(rows: Sequence[Signature]) -> Engine:
    """The quickest engine that this machine has."""
    try:
        return Hyperscan(rows)
    except ImportError:
        return Regular(rows)


ROWS_AT_MOST: Final = 4096
"""Rows of a table: a hit is packed into one number with 12 bits for its row."""
