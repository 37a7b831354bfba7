"""The files of the page, read once: what anybody may have without a token, since nothing of a run is in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing inline, nothing from elsewhere, and a browser that knows trusted types makes no markup out of any text."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is served."""

    body: bytes
    media_type: str


def read_files(folder: str) -> dict[str, PageFile]:
    """By path in the address: `/` and `/page/NAME`. A file of another kind than those in TYPES is not served."""
    found = {}
    for name in sorted(os.listdir(folder)):
        kind = TYPES.get(os.path.splitext(name)[1])
        if kind is not None:
            with open(os.path.join(folder, name), "rb") as file:
                found["/" if name == "index.html" else f"/page/{name}"] = PageFile(file.read(), kind)
    return found


FILES: Final[Mapping[str, PageFile]] = read_files(os.path.join(os.path.dirname(os.path.abspath(__file__)), "page"))
