"""A site's own rows for the table of line kinds, checked before they are believed."""

from __future__ import annotations

import re
from typing import Final

from supervisor.errors import UserError
from supervisor.evidence.engine import ROWS_AT_MOST, refused
from supervisor.evidence.table import Signature, read_table, with_site

BYTES: Final = 4 << 20


def site_table(path: str) -> tuple[Signature, ...]:
    """The shipped table with the rows of this file before it. Raises UserError: the file, the row, what would be right."""
    try:
        with open(path, "rb") as file:
            text = file.read(BYTES).decode()
        rows, whole = read_table(text), with_site(text)
    except (OSError, ValueError) as error:  # also of UTF-8 and of TOML
        raise UserError(f"{path}: {error}") from None
    for number, row in enumerate(rows, 1):
        if wrong := _wrong(row):
            raise UserError(f"{path}: signature {number} ({row.kind!r}): {wrong}")
    if not rows:
        raise UserError(f"{path}: there is no [[signature]] in it")
    if len(whole) >= ROWS_AT_MOST:
        raise UserError(f"{path}: {len(rows)} rows: {ROWS_AT_MOST - 1} at most, those that ship with relight counted")
    return whole


def _wrong(row: Signature) -> str:
    """What is wrong with a row that has the right form."""
    if row.kind.startswith(("layout-", "activity-")):
        return "kinds that begin with layout- and activity- are read by the program itself; choose another name"
    if row.pattern.search("") is not None:
        return "pattern fits an empty line, so it fits every line"
    if why := refused(row):
        return (
            f"the engine cannot look for {row.find!r}: {why}. Give a simpler `find`, at least as wide as the pattern:"
            " no lookaround, no backreference, nothing that fits an empty line"
        )
    if not row.example:
        return "an example is wanted: a line that must be of this kind; it is the row's test"
    if row.pattern.search(row.example) is None:
        return f"pattern does not fit the example {row.example!r}"
    if re.search(row.find, row.example, 0 if row.case else re.IGNORECASE) is None:
        return f"find {row.find!r} is not in the example, so no line of this kind would be looked at"
    return ""
