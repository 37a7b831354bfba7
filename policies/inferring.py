"""What a verdict by inference is made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from policies.clues import Clue, Verdict

TIMED_OUT: Final = ("collective-timeout", "store-timeout")


def inferred(
    category: str,
    first: Clue | None,
    why: str,
    live: Sequence[Clue],
    *,
    restart: bool,
    suspects: tuple[str, ...] = (),
    confidence: Literal["high", "medium", "low"] = "medium",
) -> Verdict:
    """A verdict on what no line says outright."""
    hurt = {c.rank for c in live if c.kind in TIMED_OUT and c.rank is not None}
    return Verdict(
        failed=True,
        category=category,
        first=first,
        suspects=suspects,
        restart_ok=restart,
        confidence=confidence,
        evidence="inference",
        cascade=f"Then: {len(hurt)} ranks timed out waiting for it." if hurt else "",
        why=why,
    )


def place(file: str, line: int, rank: int | None, node: str | None, text: str, category: str) -> Clue:
    """Where silence shows: the last line of the silent one, or the line by which it is missed."""
    return Clue("silence", "root", 2, category, "reporter", True, text, file, line, rank, node, found_by="silence")
