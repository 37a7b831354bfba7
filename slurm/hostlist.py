"""Slurm's short form of many node names, `n[001-003,007],login1`, taken apart as `scontrol show hostnames` does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MOST_NODES: Final = 200_000
"""More names than any cluster has: a range such as `n[0-999999999]` must not fill the memory."""

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_PLAIN = re.compile(r"[A-Za-z0-9._-]*")


def expand(text: str) -> tuple[str, ...]:
    """The names in the order of the list; none for an empty list or `(null)`. Raises ValueError for anything else."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    names: list[str] = []
    for word in _words(text):
        names += _names(word, MOST_NODES - len(names))
    return tuple(names)


def _words(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    start = depth = 0
    for at, letter in enumerate(text):
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        depth += (letter == "[") - (letter == "]")
        if depth not in {0, 1}:
            raise ValueError(f"brackets in {text[:200]!r}")
    if depth:
        raise ValueError(f"brackets in {text[:200]!r}")
    yield text[start:]


def _names(word: str, room: int) -> list[str]:
    """One word: plain parts and brackets in turn; with several brackets the last one counts fastest."""
    plain, *rest = word.split("[")
    names = [_checked(plain)]
    for part in rest:
        inside, _, after = part.partition("]")
        numbers = list(_numbers(inside, room))
        if len(names) * len(numbers) > room:
            raise ValueError(f"more than {MOST_NODES} nodes in {word[:200]!r}")
        names = [f"{name}{number}{_checked(after)}" for name in names for number in numbers]
    if not all(names):
        raise ValueError(f"a node without a name in {word[:200]!r}")
    return names


def _numbers(inside: str, room: int) -> Iterator[str]:
    for one in inside.split(","):
        match = _RANGE.fullmatch(one)
        if match is None:
            raise ValueError(f"not a range: {one[:200]!r}")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= room:
            raise ValueError(f"not a range: {one!r}")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def _checked(plain: str) -> str:
    if not _PLAIN.fullmatch(plain):
        raise ValueError(f"not a node's name: {plain[:200]!r}")
    return plain
