"""The pages of the runbook: in the wheel beside this file, in a checkout beside the packages."""

from __future__ import annotations

import os
from typing import Final

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLACES = (os.path.join(_HERE, "_runbooks"), os.path.join(os.path.dirname(os.path.dirname(_HERE)), "runbooks"))
INDEX = "README"
BESIDE: Final = (
    "capturing-evidence",
    "confirming-stall",
    "controller-dies",
    "controller-stuck",
    "drain-refused",
    "drill-archive",
    "drill-batch-host",
    "drill-controller",
    "drill-shared",
    "journal-damaged",
    "journal-not-writable",
    "notice-not-delivered",
    "paused",
    "run-directory-gone",
    "save-broken",
    "stopping-attempt",
)
"""Pages for what no decision gives as its reason: what people ask meanwhile, what the guard says, and the drills."""


def folder(places: tuple[str, ...] = _PLACES) -> str:
    """The folder of the pages. FileNotFoundError (one line for people) when this installation has none."""
    for place in places:
        if os.path.isfile(os.path.join(place, f"{INDEX}.md")):
            return place
    raise FileNotFoundError(f"no runbook pages in {' or '.join(places)}: this installation of relight is not whole")


def names(places: tuple[str, ...] = _PLACES) -> tuple[str, ...]:
    """The names of all pages, in order: one for each reason, and those of `BESIDE`. The index is none of them."""
    pages = (entry[: -len(".md")] for entry in os.listdir(folder(places)) if entry.endswith(".md"))
    return tuple(sorted(name for name in pages if name != INDEX))


def find(name: str, places: tuple[str, ...] = _PLACES) -> str:
    """The Markdown of a page. LookupError when no page has that name.

    The name is looked up among the pages and never joined to a path before that: it may come from anywhere.
    """
    if name != INDEX and name not in names(places):
        raise LookupError(name)
    with open(os.path.join(folder(places), f"{name}.md"), encoding="utf-8") as page:
        return page.read()


def seen(text: str) -> str:
    """The first sentence under `Seen`: what the page is about, for the list."""
    _, _, rest = text.partition("## Seen\n")
    line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    return line.partition(". ")[0].rstrip(".") + "." if line else ""
