"""A document as blocks, and as Markdown or as one HTML file. Pure. Text in blocks is plain; here it is cleaned and escaped.

The HTML has no script and fetches nothing: one style, of which the policy of a server can name the hash, and inline SVG.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Final

from supervisor.telling.say import clean

CELL_MAX = 600
"""Characters of one piece of text; a line of a log of megabytes is of no use to a reader."""


@dataclass(frozen=True, slots=True)
class Heading:
    """Level 1 is the title."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as the head has."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Text whose lines stay as they are; cleaned by who made it, as the stories are."""

    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """SVG made by `charts.py`, of numbers and cleaned words only, with what it shows. Markdown has no pictures."""

    svg: str
    text: str = ""


Block = Heading | Text | Items | Table | Lines | Picture

STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #ccc}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #ddd}
td{overflow-wrap:anywhere;font-variant-numeric:tabular-nums}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f5f5f5;padding:.75rem}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif}
@media print{body{margin:0;max-width:none}pre{background:#fff}}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}pre{background:#222}
th,td,h2{border-color:#444}svg text{fill:#e8e8e8}}
"""
STYLE_HASH: Final = f"sha256-{base64.b64encode(sha256(STYLE.encode()).digest()).decode()}"
POLICY: Final = f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
"""What the file says of itself; a server says it too, and that nobody may frame it."""

_MARKS = re.compile(r"([\\`*_\[\]|~@$]|:(?=//)|(?<=www)\.)")
_AT_START = re.compile(r"^([#+=>-]|\d+(?=[.)]))")


def plain(text: str) -> str:
    """One cleaned line."""
    return clean(text, CELL_MAX)


# --- Markdown ------------------------------------------------------------------------------------------------------


def markdown(blocks: Sequence[Block]) -> str:
    """As Markdown that any viewer takes, also one that lets HTML through: nothing that was seen in a log is markup."""
    return "\n\n".join(text for block in blocks if (text := _markdown(block))) + "\n"


def _md(text: str) -> str:
    """Nothing of it is markup: no emphasis, link, table, list, HTML, nor an address that a viewer would make a link of."""
    escaped = _MARKS.sub(r"\\\1", plain(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found = _AT_START.match(escaped)
    if found is None:
        return escaped
    mark, rest = found[1], escaped[found.end() :]
    return f"{mark}\\{rest}" if mark[0].isdigit() else f"\\{mark}{rest}"


def _markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_md(block.text)}"
        case Text():
            return _md(block.text)
        case Items():
            return "\n".join(f"* {_md(text)}" for text in block.texts)
        case Table():
            head = "| " + " | ".join(map(_md, block.head)) + " |"
            rows = ["| " + " | ".join(_md(cell) or " " for cell in row) + " |" for row in block.rows]
            return "\n".join([head, "|" + "---|" * len(block.head), *rows])
        case Lines():
            return "\n".join(f"    {line}" for line in block.text.splitlines())
        case Picture():
            return ""


# --- HTML ----------------------------------------------------------------------------------------------------------


def html(blocks: Sequence[Block]) -> str:
    """As one HTML file."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "relight")
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY, quote=False)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{_html(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    return head + "\n".join(_block(block) for block in blocks) + "\n</main>\n</body>\n</html>\n"


def _html(text: str) -> str:
    return escape(plain(text))


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{_html(block.text)}</h{block.level}>"
        case Text():
            return f"<p>{_html(block.text)}</p>"
        case Items():
            return "<ul>\n" + "\n".join(f"<li>{_html(text)}</li>" for text in block.texts) + "\n</ul>"
        case Table():
            head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in block.head)
            rows = [
                "<tr>" + "".join(f"<td>{_html(cell) or '&nbsp;'}</td>" for cell in row) + "</tr>" for row in block.rows
            ]
            return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
        case Lines():
            return f"<pre>{escape(block.text)}</pre>"
        case Picture():
            return f"<p>{_html(block.text)}</p>\n{block.svg}" if block.text else block.svg
